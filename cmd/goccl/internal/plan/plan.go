// Package plan is goccl plan: it lists, prints, draws and exports plans.
package plan

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/plans"
)

// Command returns the command.
func Command() *cobra.Command {
	c := cli.Group("plan", "what algorithms there are, and what each rank does", list(), show(), drawing(), export())
	c.Long = plans.Form
	return c
}

// listed is a line of plan list.
type listed struct {
	Collective string   `json:"collective"`
	Algorithm  string   `json:"algorithm"`
	Level      int      `json:"level"`
	Needs      []string `json:"needs"`
	Doc        string   `json:"doc"`
}

func list() *cobra.Command {
	c := &cobra.Command{Use: "list [COLLECTIVE]", Short: "the algorithms of the catalogue",
		Args: cli.Arguments(0, 1), ValidArgs: cli.Collectives()}
	asJSON := cli.JSON(c.Flags(), "one document")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		wanted := dtype.NoCollective
		if len(args) > 0 {
			if wanted, err = cli.ParseCollective(args[0]); err != nil {
				return cli.Misuse{Err: err}
			}
		}
		return printList(wanted, *asJSON, c.OutOrStdout())
	}
	return c
}

func printList(wanted dtype.Collective, asJSON bool, out io.Writer) error {
	var rows []listed
	for _, a := range algo.All() {
		if wanted != dtype.NoCollective && a.Coll != wanted {
			continue
		}
		p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: 4})
		if err != nil {
			return err
		}
		rows = append(rows, listed{a.Coll.String(), a.Name, a.Level, strings.Split(p.Needs.String(), "+"), a.Doc})
	}
	if asJSON {
		return cli.PrintJSON(out, rows)
	}
	table := cli.Table(out)
	fmt.Fprintln(table, "COLLECTIVE\tALGORITHM\tLEVEL\tNEEDS\tWHAT IT DOES")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n",
			r.Collective, r.Algorithm, r.Level, strings.Join(r.Needs, ","), r.Doc)
	}
	return table.Flush()
}

func show() *cobra.Command {
	c := &cobra.Command{Use: "show PLAN", Short: "verify a plan and print it"}
	choice := plans.Choose(c)
	only := cli.Flag(c.Flags(), "rank", "RANK", "", "only the program of this one", cli.Number(0, 0))
	c.RunE = func(c *cobra.Command, args []string) error {
		p, doc, err := choice.Plan(args[0])
		if err != nil {
			return err
		}
		if !c.Flags().Changed("rank") {
			*only = -1
		} else if *only >= p.Spec.Ranks {
			return cli.Misused("--rank %d of %d ranks", *only, p.Spec.Ranks)
		}
		return printPlan(p, doc, *only, c.OutOrStdout())
	}
	return c
}

func printPlan(p *plan.Plan, doc string, only int, out io.Writer) error {
	said := "not verified here: it is too large"
	report, err := verify.Plan(p, verify.Options{Work: verify.DefaultWork / 64})
	switch {
	case err == nil:
		said = plans.Verified(report)
	case !errors.Is(err, fault.NotSupported):
		return err
	}
	fmt.Fprintf(out, "# %s\n", strings.ReplaceAll(strings.TrimSpace(doc), "\n", "\n# "))
	fmt.Fprintf(out, "# %s\n\n", said)
	if only >= 0 {
		_, err = io.WriteString(out, p.Text(only))
		return err
	}
	return writeText(out, p)
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
