// Package top is goccl top: what the ranks on this host are doing now.
package top

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/internal/live"
)

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use: "top [PID …]", Short: "what the ranks on this host are doing now, by process or launcher",
	}
	once := c.Flags().Bool("once", false, "print once, also on a terminal")
	every := cli.Flag(c.Flags(), "every", "TIME", "1s", "how often a terminal is printed anew",
		cli.Duration(100*time.Millisecond))
	asJSON := cli.JSON(c.Flags(), "one document, once")
	c.RunE = func(c *cobra.Command, args []string) error {
		var pids []int
		for _, text := range args {
			pid, err := strconv.Atoi(text)
			if err != nil || pid < 1 {
				return cli.Misused("%q is not the number of a process", text)
			}
			pids = append(pids, pid)
		}
		out := c.OutOrStdout()
		if *asJSON || *once || !cli.Terminal(out) {
			return printOnce(pids, *asJSON, out)
		}
		return repeat(pids, *every, out)
	}
	return c
}

// repeat prints a page again and again, until the job has ended; its last page stays.
func repeat(pids []int, every time.Duration, out io.Writer) error {
	pages := 0
	for tick := time.NewTicker(every); ; <-tick.C {
		var page strings.Builder
		switch err := printOnce(pids, false, &page); {
		case err != nil && pages == 0:
			return err
		case err != nil:
			fmt.Fprintln(out, cli.Message(err))
			return nil
		}
		pages++
		// The cursor goes home; each line and the rest of the screen are cleared as they are
		// written.
		text := strings.ReplaceAll(page.String(), "\n", "\x1b[K\n")
		fmt.Fprintf(out, "\x1b[H%s%s\x1b[K\n\x1b[J", text, time.Now().Format(time.TimeOnly))
	}
}

// answer is what came of asking a process.
type answer struct {
	pid     int
	process *live.Process
	err     error
}

// printOnce prints what the groups of some processes are doing, and of those that they have
// started; or of all processes.
func printOnce(pids []int, asJSON bool, out io.Writer) error {
	asked, err := toAsk(pids)
	if err != nil {
		return err
	}
	answers := ask(asked)
	if asJSON {
		type process struct {
			*live.Process
			Error string `json:"error,omitempty"`
		}
		all := []process{}
		for _, a := range answers {
			p := process{Process: a.process}
			if a.err != nil {
				p = process{&live.Process{Pid: a.pid}, reason(a.err)}
			}
			all = append(all, p)
		}
		return cli.PrintJSON(out, all)
	}
	return print(answers, out)
}

// toAsk returns the processes that can be asked.
func toAsk(pids []int) ([]int, error) {
	there, err := live.Processes()
	if err != nil {
		return nil, err
	}
	if len(pids) == 0 {
		if len(there) == 0 {
			return nil, errors.New("no process of this host has groups of goccl")
		}
		return there, nil
	}
	var asked []int
	for _, pid := range pids {
		family, err := live.Family(pid)
		if err != nil {
			return nil, err
		}
		if family == nil {
			return nil, fmt.Errorf("there is no process %d", pid)
		}
		found := slices.DeleteFunc(family, func(p int) bool { return !slices.Contains(there, p) })
		if len(found) == 0 {
			return nil, fmt.Errorf("neither process %d nor what it has started has groups of goccl (GOCCL_TOP=0?)", pid)
		}
		asked = append(asked, found...)
	}
	slices.Sort(asked)
	return slices.Compact(asked), nil
}

// ask asks all processes at the same time: those that are stopped do not answer for a while. What
// has ended meanwhile, and the processes of others, are left out.
func ask(pids []int) []answer {
	answers := make([]answer, len(pids))
	var group sync.WaitGroup
	limit := make(chan struct{}, 64)
	for i, pid := range pids {
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			p, err := live.Ask(pid)
			answers[i] = answer{pid, p, err}
		})
	}
	group.Wait()
	return slices.DeleteFunc(answers, func(a answer) bool { return errors.Is(a.err, fault.NotSupported) })
}

// print prints a line for each rank of each group, the ranks of a group below each other.
func print(answers []answer, out io.Writer) error {
	type row struct {
		pid int
		live.Group
	}
	var rows []row
	more := 0
	for _, a := range answers {
		if a.process == nil {
			continue
		}
		more += a.process.More
		for _, g := range a.process.Groups {
			rows = append(rows, row{a.pid, g})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Size, b.Size), cmp.Compare(a.JobRank, b.JobRank))
	})
	table := cli.Table(out)
	fmt.Fprintln(table, "pid\tgroup\trank\tby\tseq\tcalls/s\tGB/s\tnow")
	for _, r := range rows {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%s\t%s\n",
			r.pid, named(&r.Group), whereIn(&r.Group), r.Routes, r.Seq, paceOf(r.Pace), now(&r.Group))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, a := range answers {
		switch {
		case a.err != nil:
			fmt.Fprintln(out, reason(a.err))
		case len(a.process.Groups) == 0:
			fmt.Fprintf(out, "process %d is in no group\n", a.pid)
		}
	}
	if more > 0 {
		fmt.Fprintf(out, "%d more groups\n", more)
	}
	return nil
}

// reason is the text of an error without its class.
func reason(err error) string {
	var f *fault.Error
	if !errors.As(err, &f) || f.Cause != nil {
		return cli.Message(err)
	}
	return f.Text
}

// named is the group, with its description if it says more.
func named(g *live.Group) string {
	if g.Description == "" || g.Description == "undefined" || g.Description == g.Name {
		return oneLine(g.Name)
	}
	return oneLine(fmt.Sprintf("%s (%s)", g.Name, g.Description))
}

// whereIn is the rank, with its number in the whole job if that differs.
func whereIn(g *live.Group) string {
	if g.JobRank == g.Rank {
		return fmt.Sprintf("%d of %d", g.Rank, g.Size)
	}
	return fmt.Sprintf("%d of %d (%d)", g.Rank, g.Size, g.JobRank)
}

// paceOf fills two columns.
func paceOf(p *live.Pace) string {
	if p == nil {
		return "\t"
	}
	return fmt.Sprintf("%.0f\t%.3f", p.Operations, p.Bytes/1e9)
}

// now says what a rank is doing.
func now(g *live.Group) string {
	if g.Failure != "" {
		return "failed: " + oneLine(g.Failure)
	}
	var text string
	switch {
	case g.Op != "":
		text = oneLine(g.Op)
	case g.Busy:
		text = fmt.Sprintf("in a call after seq %d", g.Seq)
	default:
		text = "in no call"
	}
	if g.For > 0 {
		text += fmt.Sprintf(", for %.1f s", g.For)
	}
	if len(g.Waits) > 0 {
		text += ": waits for " + ranks(g.Waits)
	}
	if len(g.Lost) > 0 {
		text += "; lost: " + ranks(g.Lost)
	}
	return text
}

// ranks lists ranks, the first few of many.
func ranks(all []int) string {
	const few = 8
	text := "rank "
	if len(all) > 1 {
		text = "ranks "
	}
	for i, rank := range all {
		if i == few {
			return text + fmt.Sprintf(" and %d more", len(all)-few)
		}
		if i > 0 {
			text += ", "
		}
		text += strconv.Itoa(rank)
	}
	return text
}

// oneLine makes a text that another process sent fit into a table.
func oneLine(text string) string {
	const most = 160
	text = strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
	if short := []rune(text); len(short) > most {
		return string(short[:most-1]) + "…"
	}
	return text
}
