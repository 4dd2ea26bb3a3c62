package fault

import (
	"fmt"
	"slices"
)

// Lost returns one error for ranks that are lost, each of which has one of the errors, as its Peer:
// what all have in common is said once. There is at least one.
func Lost(errs []*Error) *Error {
	if len(errs) == 1 {
		return errs[0]
	}
	all := *errs[0]
	all.Cause, all.Ranks, all.Text = nil, nil, ""
	var texts []string
	var who [][]int // by text
	for _, one := range errs {
		all.Ranks = append(all.Ranks, one.Peer)
		text := one.Text
		if one.Cause != nil {
			text = joined(text, Text(one.Cause))
		}
		at := slices.Index(texts, text)
		if at < 0 {
			at, texts, who = len(texts), append(texts, text), append(who, nil)
		}
		who[at] = append(who[at], one.Peer)
	}
	slices.Sort(all.Ranks)
	all.Peer = all.Ranks[0]
	for i, text := range texts {
		if i > 0 {
			all.Text += "; "
		}
		all.Text += joined(Ranks(who[i]), text)
	}
	return &all
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// Ranks names ranks: "rank 4", "ranks 1, 3".
func Ranks(ranks []int) string {
	text := ""
	for i, rank := range ranks {
		switch {
		case len(ranks) == 1:
			text = "rank "
		case i == 0:
			text = "ranks "
		default:
			text += ", "
		}
		text += fmt.Sprint(rank)
	}
	return text
}
