package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// loadPlan reads a plan file, text or JSON; - is standard input.
func loadPlan(path string) (*plan.Plan, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "cannot read the plan")
		}
		defer file.Close()
	}
	data, err := io.ReadAll(io.LimitReader(file, plan.MaxFileSize+1))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot read the plan")
	}
	p, err := plan.Load(data)
	if wrong := (*fault.Error)(nil); errors.As(err, &wrong) {
		return nil, fault.New(wrong.Code, "%s: %s", path, wrong.Text)
	}
	return p, err
}

// writeText writes the text of the ranks one at a time: all together may be larger than memory.
func writeText(out io.Writer, p *plan.Plan) error {
	for rank := range p.Spec.Ranks {
		text := p.Text(rank)
		if rank > 0 {
			text = text[strings.Index(text, "\nrank ")+1:] // without the head of the file
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	return nil
}

// planFile is a buffer limited to the maximum size of a plan file.
type planFile struct{ bytes.Buffer }

func (f *planFile) WriteString(text string) (int, error) {
	if f.Len()+len(text) > plan.MaxFileSize {
		return 0, fmt.Errorf(
			"the plan is too large for a file, which may have %d bytes; take fewer ranks", plan.MaxFileSize)
	}
	return f.Buffer.WriteString(text)
}

// output writes text to a file, or to out if there is no path.
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
	p, name, err := c.plan(args)
	if err != nil {
		return err
	}
	opts := draw.Options{}
	if *only != -1 {
		opts.Only = only
	}
	_, wrong := verify.Plan(p, verify.Options{Work: verify.DefaultWork / 64})
	if bad := (*verify.Counterexample)(nil); errors.As(wrong, &bad) {
		opts.Wrong = verdict(bad)
	} else if errors.Is(wrong, fault.NotSupported) {
		if wrong = nil; c.fromFile {
			wrong = fmt.Errorf("%s is drawn, but not verified here: it is too large", name)
		}
	}
	text, err := draw.SVG(p, opts)
	switch {
	case err != nil && wrong != nil:
		return fmt.Errorf("%w\nit cannot be drawn: %s", wrong, message(err))
	case err != nil:
		return err
	}
	if err := output(*path, text, out); err != nil {
		return err
	}
	return wrong
}

// verdict converts a counterexample for a drawing.
func verdict(bad *verify.Counterexample) *draw.Verdict {
	places := func(all []verify.Where) (places []draw.Place) {
		for _, w := range all {
			places = append(places, draw.Place{Rank: w.Rank, Lane: w.Lane, Step: w.Step})
		}
		return places
	}
	return &draw.Verdict{Text: bad.Summary(), Blamed: places(bad.At), Stuck: places(bad.Stuck)}
}

func planExport(args []string, out io.Writer) error {
	c := choiceFlags("plan export", out)
	path := c.set.String("o", "", "file to write; standard output if empty")
	format := c.set.String("format", "text", "text or json")
	p, _, err := c.plan(args)
	if err != nil {
		return err
	}
	if *format != "text" && *format != "json" {
		return fmt.Errorf("--format %s: want text or json", *format)
	}
	if c.fromFile {
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			return err
		}
	}
	file := &planFile{}
	if err := writeText(file, p); err != nil {
		return err
	}
	if *format == "json" { // JSON is longer than the text, so the text was checked first
		data, err := p.JSON()
		if err != nil {
			return err
		}
		file = &planFile{}
		if _, err := file.WriteString(string(data)); err != nil {
			return err
		}
	}
	return output(*path, file.String(), out)
}

// verifyFile proves that groups of a level of determinism can use a plan, and prints a summary of
// it.
func verifyFile(path string, determinism int, out io.Writer) error {
	p, err := loadPlan(path)
	if err != nil {
		return err
	}
	opts, err := environment()
	if err != nil {
		return err
	}
	limits := opts.FileProof()
	report, err := verify.Accept(p, determinism, limits)
	if err == nil {
		err = ccl.ProveAsRun(p, determinism, limits.Work)
	}
	if err != nil {
		return err
	}
	var sent, reduced, tmp int
	for _, l := range report.Ranks {
		sent, reduced, tmp = max(sent, l.Sent), max(reduced, l.Reduced), max(tmp, l.Tmp)
	}
	fmt.Fprintf(out, "%s: %v\n%s\n", p.Name, p.Spec, verified(report))
	fmt.Fprintf(out, "needs %v; %d chunks a block; a rank sends up to %d chunks, reduces %d, keeps %d in tmp\n",
		needs(p.Needs), p.Split,
		sent, reduced, tmp)
	return nil
}
