package main

import (
	"fmt"
	"io"
	"os"

	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// loadPlan reads a plan file, text or JSON.
func loadPlan(path string) (*plan.Plan, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot read the plan")
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, plan.MaxFileSize+1))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot read the plan")
	}
	p, err := plan.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// output writes text to a file, or to out where there is no path.
func output(path, text string, out io.Writer) error {
	if path == "" || path == "-" {
		_, err := io.WriteString(out, text)
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func planDraw(args []string, out io.Writer) error {
	c := choiceFlags("plan draw", out)
	path := c.set.String("o", "", "file to write; standard output if empty")
	only := c.set.Int("rank", -1, "only this rank and those that it exchanges something with")
	p, _, err := c.plan(args)
	if err != nil {
		return err
	}
	opts := draw.Options{}
	if *only != -1 {
		opts.Only = only
	}
	text, err := draw.SVG(p, opts)
	if err != nil {
		return err
	}
	return output(*path, text, out)
}

func planExport(args []string, out io.Writer) error {
	c := choiceFlags("plan export", out)
	path := c.set.String("o", "", "file to write; standard output if empty")
	format := c.set.String("format", "text", "text or json")
	p, _, err := c.plan(args)
	if err != nil {
		return err
	}
	text := ""
	switch *format {
	case "text":
		text = p.Text()
	case "json":
		data, err := p.JSON()
		if err != nil {
			return err
		}
		text = string(data)
	default:
		return fmt.Errorf("--format %s: want text or json", *format)
	}
	return output(*path, text, out)
}

func planImport(args []string, out io.Writer) error {
	rest, err := parseMixed(flags("plan import", out), args)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return fmt.Errorf("plan import needs one FILE, got %d", len(rest))
	}
	return verifyFile(rest[0], out)
}

// verifyFile loads and verifies a plan and says what it is.
func verifyFile(path string, out io.Writer) error {
	p, err := loadPlan(path)
	if err != nil {
		return err
	}
	report, err := verify.Plan(p, verify.Options{})
	if err != nil {
		return err
	}
	most := verify.Load{}
	for _, l := range report.Ranks {
		most.Sent, most.Reduced, most.Tmp = max(most.Sent, l.Sent), max(most.Reduced, l.Reduced), max(most.Tmp, l.Tmp)
	}
	fmt.Fprintf(out, "%s: %v\n%s\n", p.Name, p.Spec, verified(report))
	fmt.Fprintf(out, "needs %v; %d chunks a block; a rank sends up to %d chunks, reduces %d, keeps %d in tmp\n", needs(p.Needs), p.Split,
		most.Sent, most.Reduced, most.Tmp)
	return nil
}
