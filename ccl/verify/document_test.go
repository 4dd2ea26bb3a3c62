package verify_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// TestPlansOfDocument reads and verifies the examples of PLAN.md: the plan is the same as text and
// as JSON, is right, and is what the writer produces; the steps that are not a whole plan are read
// as part of one.
func TestPlansOfDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "plan", "PLAN.md"))
	require.NoError(t, err)
	var swaps []*plan.Plan
	steps := 0
	for _, block := range regexp.MustCompile("(?s)\n```([a-z]*)\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
		switch body := block[2]; {
		case block[1] == "ebnf":
		case block[1] == "json", strings.HasPrefix(body, "goccl plan format"):
			p, err := plan.Load([]byte(body))
			require.NoError(t, err, body)
			report, err := verify.Accept(p, int(verify.RankOrder), verify.Options{})
			require.NoError(t, err, body)
			require.Equal(t, 2, report.Messages)
			require.NoError(t, concrete(p, rand.New(rand.NewPCG(1, 17)), 100), body)
			swaps = append(swaps, p)
		default:
			const before = "goccl plan format 2\nplan steps all_reduce ranks=5 split=8 flags=2 win=4 needs=messages+puts+gets\n" +
				"rank 0\nrank 1\nrank 2\nrank 3\nrank 4\n  tmp 0/0\n  win 0/0*4\n  lane 0\n"
			after := "  lane 1\n" + strings.Repeat("    copy tmp[0] = in[0]\n", 9)
			_, err := plan.Parse([]byte(before + body + after))
			require.NoError(t, err, body)
			steps++
		}
	}
	require.Len(t, swaps, 2)
	require.Equal(t, swaps[0].Text(), swaps[1].Text())
	require.Equal(t, 1, steps)
}

// TestNamesOfSets compares the names that PLAN.md lists with those that the reader accepts.
func TestNamesOfSets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "plan", "PLAN.md"))
	require.NoError(t, err)
	list := regexp.MustCompile("(?s)The names of a set, none twice: (.*?)\\.\n").FindSubmatch(text)
	require.NotNil(t, list)
	var names []string
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(list[1], -1) {
		names = append(names, string(m[1]))
	}
	all := plan.Need(plan.Messages|plan.Puts|plan.Gets|plan.Counts).String() + "+" +
		plan.Alias(plan.InPlace|plan.Lend).String()
	require.Equal(t, strings.Split(all, "+"), names)
}
