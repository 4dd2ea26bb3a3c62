package plan

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/plans"
)

// planFile is a buffer limited to the maximum size of a plan file.
type planFile struct{ bytes.Buffer }

func (f *planFile) WriteString(text string) (int, error) {
	if f.Len()+len(text) > plan.MaxFileSize {
		return 0, fmt.Errorf(
			"the plan is too large for a file, which may have %d bytes; take fewer ranks", plan.MaxFileSize)
	}
	return f.Buffer.WriteString(text)
}

func drawing() *cobra.Command {
	c := &cobra.Command{Use: "draw PLAN",
		Short: "draw a plan as SVG; the drawing of a wrong one says what is wrong and what never happens"}
	choice := plans.Choose(c)
	only := cli.Flag(c.Flags(), "rank", "RANK", "", "only this one and those that it exchanges something with",
		cli.Number(0, 0))
	path := cli.Output(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		p, name, err := choice.Plan(args[0])
		if err != nil {
			return err
		}
		opts := draw.Options{}
		if c.Flags().Changed("rank") {
			opts.Only = only
		}
		text, wrong, err := drawn(p, opts)
		if errors.Is(wrong, fault.NotSupported) {
			if wrong = nil; choice.FromFile {
				wrong = fmt.Errorf("%s is drawn, but not verified here: it is too large", name)
			}
		}
		switch {
		case err != nil && wrong != nil:
			return fmt.Errorf("%w\nit cannot be drawn: %s", wrong, cli.Message(err))
		case err != nil:
			return err
		}
		if err := cli.WriteFile(*path, text, c.OutOrStdout()); err != nil {
			return err
		}
		return wrong
	}
	return c
}

// drawn draws a plan. wrong is what is wrong with the plan, err why it cannot be drawn.
func drawn(p *plan.Plan, opts draw.Options) (text string, wrong, err error) {
	_, wrong = verify.Plan(p, verify.Options{Work: verify.DefaultWork / 64})
	if bad := (*verify.Counterexample)(nil); errors.As(wrong, &bad) {
		opts.Wrong = verdict(bad)
	}
	text, err = draw.SVG(p, opts)
	return text, wrong, err
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

func export() *cobra.Command {
	c := &cobra.Command{Use: "export PLAN", Short: "write a plan to a file; one from a file is verified before"}
	choice := plans.Choose(c)
	path := cli.Output(c.Flags())
	format := cli.Flag(c.Flags(), "format", "FORM", "text", "text or json", func(text string) (string, error) {
		if text != "text" && text != "json" {
			return "", errors.New("want text or json")
		}
		return text, nil
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		p, _, err := choice.Plan(args[0])
		if err != nil {
			return err
		}
		if choice.FromFile {
			if _, err := verify.Plan(p, verify.Options{}); err != nil {
				return err
			}
		}
		text, err := fileOf(p, *format)
		if err != nil {
			return err
		}
		return cli.WriteFile(*path, text, c.OutOrStdout())
	}
	return c
}

// fileOf returns the text of the file of a plan.
func fileOf(p *plan.Plan, format string) (string, error) {
	file := &planFile{}
	if err := writeText(file, p); err != nil {
		return "", err
	}
	if format == "json" { // JSON is longer than the text, so the text was checked first
		data, err := p.JSON()
		if err != nil {
			return "", err
		}
		file = &planFile{}
		if _, err := file.WriteString(string(data)); err != nil {
			return "", err
		}
	}
	return file.String(), nil
}
