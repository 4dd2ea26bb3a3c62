package ccl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
)

// printed returns the lines that run writes to standard error, sorted and without their common
// prefix.
func printed(t *testing.T, run func()) []string {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	was := os.Stderr
	os.Stderr = write
	all := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(read)
		all <- text
	}()
	func() {
		defer func() { os.Stderr = was; write.Close() }()
		run()
	}()
	var lines []string
	for line := range strings.Lines(string(bytes.TrimSpace(<-all))) {
		require.Regexp(t, `^\S+ \S+:\d+ goccl (WARN|INFO|TRACE) rank \d+ group local: `, line)
		_, line, _ = strings.Cut(strings.TrimSpace(line), " goccl ")
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// ownFile writes the plan of an algorithm of the catalogue as a user's plan, for a range of sizes.
func ownFile(t *testing.T, spec plan.Spec, name string, low, high int64) string {
	t.Helper()
	a, err := algo.Find(spec.Coll, name)
	require.NoError(t, err)
	p, err := a.Make(spec)
	require.NoError(t, err)
	p.Name, p.MinBytes, p.MaxBytes = "own_"+name, low, high
	file := filepath.Join(t.TempDir(), "own.plan")
	require.NoError(t, os.WriteFile(file, []byte(p.Text()), 0o600))
	return file
}

// makeCalls opens a group of two ranks, each of which makes the calls, and closes it.
func makeCalls(t *testing.T, opts GroupOptions, calls ...groupCall) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	node, comms, err := Local(ctx, 2, opts)
	require.NoError(t, err)
	defer node.Close()
	done := make(chan error, len(comms))
	for _, c := range comms {
		go func() {
			var all error
			for _, call := range calls {
				all = errors.Join(all, call(ctx, c))
			}
			done <- all
		}()
	}
	for range comms {
		require.NoError(t, <-done)
	}
}

type groupCall func(ctx context.Context, c *Communicator) error

func sum(n int) groupCall {
	return func(ctx context.Context, c *Communicator) error {
		x := make([]float32, n)
		return AllReduce(ctx, c, x, x, Sum)
	}
}

func broadcast(root, n int) groupCall {
	return func(ctx context.Context, c *Communicator) error {
		return Broadcast(ctx, c, make([]float32, n), root)
	}
}

func barrier(ctx context.Context, c *Communicator) error { return Barrier(ctx, c) }

// TestWhichPlanRunsIsPrinted checks the lines about plans at each level of GOCCL_DEBUG.
func TestWhichPlanRunsIsPrinted(t *testing.T) {
	allReduce := plan.Spec{Coll: dtype.AllReduce, Ranks: 2}
	opts := GroupOptions{Algo: "all_reduce=direct,broadcast=binomial,barrier=flags", Topo: "off"}
	file := ownFile(t, allReduce, "ring", 8, 16)
	calls := []groupCall{sum(2), sum(2), sum(4), sum(1), sum(100), sum(100), barrier, broadcast(1, 3)}
	info := []string{
		"INFO rank %d group local: all_reduce of 0 to 7 bytes: plan direct (GOCCL_ALGO)",
		"INFO rank %d group local: all_reduce of 8 to 16 bytes: plan own_ring of " + file,
		"INFO rank %d group local: barrier: plan flags (GOCCL_ALGO)",
		"INFO rank %d group local: broadcast with root 1: plan binomial (GOCCL_ALGO)",
		"INFO rank %d group local: goccl " + Version + ": joined 2 ranks: 1 by inproc",
	}
	trace := []string{
		"TRACE rank %d group local: all_reduce of 16 bytes: plan own_ring of " + file,
		"TRACE rank %d group local: all_reduce of 4 bytes: plan direct",
		"TRACE rank %d group local: all_reduce of 400 bytes: plan direct",
		"TRACE rank %d group local: all_reduce of 8 bytes: plan own_ring of " + file,
		"TRACE rank %d group local: barrier: plan flags",
		"TRACE rank %d group local: broadcast of 12 bytes: plan binomial",
	}
	for level, want := range map[string][]string{"WARN": nil, "INFO": info, "TRACE": append(info, trace...)} {
		opts.Debug, opts.Plan = level, file
		var all []string
		for rank := range 2 {
			for _, line := range want {
				all = append(all, fmt.Sprintf(line, rank))
			}
		}
		slices.Sort(all)
		require.Equal(t, all, printed(t, func() { makeCalls(t, opts, calls...) }), level)
	}
}

// A plan that matched no call is named when the group is closed, at every level and by one rank,
// together with the calls that were made.
func TestPlansThatWereNotUsedAreNamed(t *testing.T) {
	allReduce := plan.Spec{Coll: dtype.AllReduce, Ranks: 2}
	for _, test := range []struct {
		spec      plan.Spec
		name      string
		low, high int64
		calls     []groupCall
		want      string
	}{
		{allReduce, "ring", 8, 16, []groupCall{sum(1), sum(5), sum(1)},
			"all_reduce on 2 ranks of 8 to 16 bytes; all_reduce was called of 4, 20 bytes, and ran direct"},
		{allReduce, "ring", 64, 0, []groupCall{sum(1), sum(2), sum(3), sum(4), sum(5), sum(6)},
			"all_reduce on 2 ranks of 64 bytes and more; all_reduce was called of 4, 8, 12, 16, … bytes, and ran direct"},
		{allReduce, "ring", 0, 0, []groupCall{barrier, broadcast(1, 1)},
			"all_reduce on 2 ranks; all_reduce was never called, but broadcast, barrier"},
		{allReduce, "ring", 0, 0, nil, "all_reduce on 2 ranks; no collective was called"},
		{plan.Spec{Coll: dtype.Broadcast, Ranks: 2, Root: 1}, "flat", 0, 0, []groupCall{broadcast(0, 2)},
			"broadcast on 2 ranks, root 1; broadcast was called with root 0 of 8 bytes, and ran binomial"},
		{plan.Spec{Coll: dtype.Barrier, Ranks: 2}, "tree", 1, 0, []groupCall{barrier},
			"barrier on 2 ranks of 1 bytes and more; barrier was called, and ran flags"},
	} {
		opts := GroupOptions{Algo: "all_reduce=direct,broadcast=binomial,barrier=flags"}
		opts.Plan = ownFile(t, test.spec, test.name, test.low, test.high)
		got := printed(t, func() { makeCalls(t, opts, test.calls...) })
		want := "WARN rank 0 group local: GOCCL_PLAN: " + opts.Plan + " was never used: it is for " + test.want
		require.Equal(t, []string{want}, got)
	}
	opts := GroupOptions{Plan: ownFile(t, plan.Spec{Coll: dtype.AllReduce, Ranks: 3}, "ring", 0, 64)}
	require.Empty(t, printed(t, func() { makeCalls(t, opts, sum(1)) }),
		"it is for groups of another size, as there may be")
	opts.Debug = "INFO"
	const other = `INFO rank [01] group local: GOCCL_PLAN: .*/own.plan is not used in this group of 2 ranks: ` +
		`it is for all_reduce on 3 ranks of 0 to 64 bytes$`
	said := 0
	for _, line := range printed(t, func() { makeCalls(t, opts) }) {
		if regexp.MustCompile(other).MatchString(line) {
			said++
		}
	}
	require.Equal(t, 2, said)
}

// The sizes that are printed for a plan must be those for which it is chosen.
func TestSpan(t *testing.T) {
	table, err := tune.ParseTable([]byte("goccl tune table 2\nall_reduce 2 any any 1000 direct\n" +
		"all_reduce 2 any any 1M two_shot\nall_reduce 2 any any any ring"))
	require.NoError(t, err)
	own := &plan.Plan{Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 2}, MinBytes: 1500, MaxBytes: 1777}
	p := newPlanner(&GroupOptions{Determinism: 2}, []ownPlan{{own, "own.plan"}}, topo.Spread(2, 2))
	p.wishes.Table = table
	for bytes, want := range map[int64][2]int64{
		0: {0, 1000}, 1: {0, 1000}, 1000: {0, 1000}, 1001: {1001, 1499}, 1600: {1500, 1777},
		5000: {1778, 1 << 20}, 1 << 20: {1778, 1 << 20},
		1<<20 + 1: {1<<20 + 1, mostBytes}, 1 << 40: {1<<20 + 1, mostBytes},
	} {
		low, high := p.span(dtype.AllReduce, bytes)
		require.Equal(t, want, [2]int64{low, high}, "%d bytes", bytes)
	}
}
