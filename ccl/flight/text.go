package flight

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// describe names an operation as errors do. Its ranks are numbers in the whole job.
func (e *entry) describe(g *group) string {
	verb, _, peer := e.parts()
	size := ""
	if e.typ != "" {
		elements := e.in
		if e.in == 0 || e.agreed == e.out && e.out > e.in {
			elements = e.out
		}
		size = fmt.Sprintf(" of %d x %s", elements, e.typ)
	}
	tag := ""
	if e.tag >= 0 {
		tag = fmt.Sprintf(", tag %d", e.tag)
	}
	switch {
	case verb != "" && peer < 0:
		return verb + size + " from any rank" + tag
	case verb != "" && peer < len(g.ranks):
		return fmt.Sprintf("%s%s %s rank %d%s", verb, size, map[string]string{"send": "to", "recv": "from"}[verb],
			g.ranks[peer], tag)
	}
	text := e.name + size
	if e.op != "" {
		text += " (" + e.op + ")"
	}
	if e.root >= 0 && e.root < int64(len(g.ranks)) {
		text += fmt.Sprintf(", root %d", g.ranks[e.root])
	}
	return text
}

// parts takes the name of a message apart; verb is empty for other operations, and peer is -1 for
// any rank. Both are ranks of the group.
func (e *entry) parts() (verb string, me, peer int) {
	for verb, between := range map[string]string{"send": "->", "recv": "<-"} {
		ranks, ok := strings.CutPrefix(e.name, verb+" ")
		left, right, both := strings.Cut(ranks, between)
		if !ok || !both {
			continue
		}
		me, err := strconv.Atoi(left)
		peer, wrong := strconv.Atoi(right)
		switch {
		case err == nil && wrong == nil && me >= 0 && peer >= 0:
			return verb, me, peer
		case err == nil && right == "?":
			return verb, me, -1
		}
	}
	return "", -1, -1
}

// title is describe with the number among the collectives.
func (e *entry) title(g *group) string {
	if e.message {
		return e.describe(g)
	}
	return fmt.Sprintf("seq %d, %s", e.seq, e.describe(g))
}

// called describes what a rank has called at one number.
func (m *member) called(g *group, seq int64) string {
	const few = 3
	var parts []string
	entries := m.calls[seq]
	for i, e := range entries {
		if i == few && len(entries) > few+1 {
			parts = append(parts, fmt.Sprintf("%d more", len(entries)-few))
			break
		}
		parts = append(parts, e.describe(g))
	}
	return strings.Join(parts, " and ")
}

func numbers(members []*member) []int {
	var all []int
	for _, m := range members {
		all = append(all, m.rank)
	}
	return all
}

func named(members []*member) string { return ranksText(numbers(members)) }

// ranksText is "rank 2", "ranks 0, 1, 3" or "ranks 0-6, 8".
func ranksText(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	return "ranks " + spans(ranks)
}

// spans lists numbers, with a dash for more than two that follow each other.
func spans(ranks []int) string {
	ranks = slices.Sorted(slices.Values(ranks))
	var parts []string
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		if end > i+1 {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[end]))
			i = end + 1
			continue
		}
		parts = append(parts, strconv.Itoa(ranks[i]))
		i++
	}
	return strings.Join(parts, ", ")
}

func have(members []*member) string {
	if len(members) == 1 {
		return named(members) + " has"
	}
	return named(members) + " have"
}

func are(members []*member) string {
	if len(members) == 1 {
		return named(members) + " is"
	}
	return named(members) + " are"
}

func secondsText(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// Print writes the report for people: a table for each group, and the conclusion at the end.
func (r *Report) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i := range r.Groups {
		g := &r.Groups[i]
		fmt.Fprintf(table, "group %s", g.Name)
		if g.Description != "" && g.Description != "undefined" {
			fmt.Fprintf(table, " (%s)", g.Description)
		}
		fmt.Fprintf(table, ", %s\n", ranksText(g.Ranks))
		fmt.Fprintln(table, "  rank\tcalled\tended\tat the end")
		for _, s := range g.Stands {
			text := s.Now
			if s.For > 0 {
				text += " for " + secondsText(time.Duration(s.For*float64(time.Second)))
			}
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", spans(s.Ranks), count(s.Called), count(s.Ended), text)
		}
		table.Flush()
		if g.Difference != "" {
			fmt.Fprintf(table, "  → %s\n", g.Difference)
		}
		for _, note := range g.Notes {
			fmt.Fprintf(table, "  %s\n", note)
		}
		fmt.Fprintln(table)
	}
	for _, each := range r.Unreadable {
		fmt.Fprintln(table, each)
	}
	fmt.Fprintln(table, r.Conclusion)
	return table.Flush()
}

// count writes a number of calls.
func count(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}
