package ccl

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/tune/online"
)

var onlineRuns = flag.Int("online.runs", 6, "groups of TestOnlineNeverDiffers")

// randomCalls makes the same calls on all ranks, some of them late, and some posted. Each checks
// its results.
func randomCalls(t *testing.T, comms []*Communicator, seed uint64, calls int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := len(comms)
	onAll(t, comms, func(rank int) error {
		c, order := comms[rank], rand.New(rand.NewPCG(seed, 0))
		late := rand.New(rand.NewPCG(seed, uint64(rank)+1))
		for i := range calls {
			size := []int{60_000, 65_000, 120_000}[order.IntN(3)]
			kind, root, posts := order.IntN(3), order.IntN(n), order.IntN(4) == 0
			if late.IntN(4) == 0 {
				time.Sleep(time.Duration(late.IntN(300)) * time.Microsecond)
			}
			in, out := make([]int32, size), make([]int32, size)
			for k := range in {
				in[k] = int32(rank + i + k%7)
			}
			call := Call{Coll: dtype.AllReduce, Type: dtype.I32, In: one(in), Out: one(out)}
			want := func(k int) int32 { return int32(n*(n-1)/2 + n*(i+k%7)) }
			switch kind {
			case 1:
				call = broadcastCall(c, in, root)
				out, want = in, func(k int) int32 { return int32(root + i + k%7) }
			case 2:
				part := size / n
				call, _ = allGatherCall(c, in[:part], out[:part*n])
				want = func(k int) int32 { return int32(k/part + i + k%part%7) }
				out = out[:part*n]
			}
			var err error
			if posts {
				var w *Work
				if w, err = c.Start(&call); err == nil {
					err = w.Wait(ctx)
				}
			} else {
				err = c.Do(ctx, &call)
			}
			if err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
			for k, x := range out {
				if x != want(k) {
					return fmt.Errorf("call %d, %v: element %d is %d, want %d", i, call.Coll, k, x, want(k))
				}
			}
		}
		return nil
	})
}

// soon has trials begin after a few calls.
func soon(t *testing.T) {
	before := worth
	worth = 1
	t.Cleanup(func() { worth = before })
}

// Ranks try, and choose, the same however late each of them is: a plan that differs would be a
// mismatch. Sequence numbers stay those of the program's calls.
func TestOnlineNeverDiffers(t *testing.T) {
	soon(t)
	tried := 0
	for run := range *onlineRuns {
		hosts := [][]int{{0, 1}, {0, 0}, {0, 1, 2}, {0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3, 4}}[run%6]
		t.Run(fmt.Sprint(run, hosts), func(t *testing.T) {
			comms := onHosts(t, topo.OnHosts(hosts...), GroupOptions{Tune: "online", Determinism: 1 + run%2})
			var seen []*[]online.Result
			for _, c := range comms {
				seen = append(seen, watch(c))
			}
			randomCalls(t, comms, uint64(run), 250)
			for rank, c := range comms {
				require.EqualValues(t, 250, c.Seq())
				require.Equal(t, *seen[0], *seen[rank], "rank %d", rank)
				require.Equal(t, comms[0].planner.trials.winners, c.planner.trials.winners)
			}
			tried += len(*seen[0])
		})
	}
	require.GreaterOrEqual(t, tried, 4**onlineRuns, "candidates")
}

// watch returns what the trials of a group come to.
func watch(c *Communicator) *[]online.Result {
	all, t := new([]online.Result), c.planner.trials
	t.tuner = online.New(t.offer, func(r *online.Result) {
		*all = append(*all, *r)
		t.ended(r)
	})
	return all
}

// offered returns what a planner would try in place of its choice for a call.
func offered(p *planner, coll dtype.Collective, bytes int64) (usual string, others []string) {
	i := p.Choose(coll, bytes)
	if i < len(p.users) {
		usual = p.users[i].Name
	} else {
		usual = p.names[i-len(p.users)].Name
	}
	for _, c := range p.trials.offer(coll, bytes, i) {
		others = append(others, p.names[c.Algorithm-len(p.users)].Name)
	}
	return usual, others
}

func TestOnlineOffers(t *testing.T) {
	apart, windows := topo.Spread(4, 4), topo.Spread(4, 1).WithSlot(windowSlot)
	row, err := tune.ParseTable([]byte(tune.Header + "\nbroadcast 2+ any any any flat\n"))
	require.NoError(t, err)
	ring, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	own, err := ring.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 4})
	require.NoError(t, err)
	for _, test := range []struct {
		name   string
		on     *topo.Group
		opts   GroupOptions
		coll   dtype.Collective
		bytes  int64
		usual  string
		others []string
	}{
		{"no sum", apart, GroupOptions{Determinism: 2}, dtype.AllGather, 1 << 20, "ring", []string{"pairwise"}},
		{"short", apart, GroupOptions{Determinism: 2}, dtype.Broadcast, 8, "binomial", []string{"flat"}},
		{"a sum by ring", apart, GroupOptions{Determinism: 2}, dtype.AllReduce, 1 << 20, "ring", nil},
		{"any bits", apart, GroupOptions{Determinism: 1}, dtype.AllReduce, 1 << 20, "ring", []string{"two_shot"}},
		{"in rank order", apart, GroupOptions{Determinism: 4}, dtype.AllReduce, 1 << 20, "two_shot", nil},
		{"in rank order by chance", apart, GroupOptions{Determinism: 2}, dtype.AllReduce, 64 << 10, "ring", nil},
		{"in rank order, too", apart, GroupOptions{Determinism: 3}, dtype.Reduce, 1 << 20, "flat", []string{"chain"}},
		{"two ranks have one order", topo.Spread(2, 2), GroupOptions{Determinism: 2}, dtype.AllReduce, 1 << 20, "ring",
			[]string{"two_shot"}},
		{"windows", windows, GroupOptions{Determinism: 2}, dtype.AllReduce, 1 << 20, "two_shot_window",
			[]string{"one_shot_window"}},
		{"sizes nearby", topo.Spread(2, 1).WithSlot(windowSlot), GroupOptions{Determinism: 2}, dtype.Broadcast, 1 << 19,
			"window", []string{"binomial"}},
		{"levels", topo.OnHosts(0, 0, 1, 1), GroupOptions{Determinism: 1}, dtype.AllGather, 4 << 20,
			"hierarchical.direct.ring", []string{"hierarchical.direct.pairwise"}},
		{"a wish", apart, GroupOptions{Determinism: 1, Algo: "all_reduce=ring"}, dtype.AllReduce, 1 << 20, "ring", nil},
		{"a user's row", apart, GroupOptions{Determinism: 2, Tune: "online,x"}, dtype.Broadcast, 1 << 20, "flat", nil},
		{"a user's plan", apart, GroupOptions{Determinism: 2, Plan: "x"}, dtype.AllReduce, 1 << 20, own.Name, nil},
		{"no size", apart, GroupOptions{Determinism: 2}, dtype.AllToAll, 0, "linear", nil},
		{"one rank", topo.Spread(1, 1), GroupOptions{Determinism: 1}, dtype.AllReduce, 8, "direct", nil},
		{"many ranks", topo.Spread(100, 100), GroupOptions{Determinism: 1}, dtype.AllGather, 64 << 20, "ring", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var users []ownPlan
			if test.opts.Plan != "" {
				users = []ownPlan{{own, "x"}}
			}
			p := newPlanner(&test.opts, users, test.on)
			if test.opts.Tune != "" {
				p.wishes.Table = row
			}
			p.tryOnline(exec.PlanChannels)
			usual, others := offered(p, test.coll, test.bytes)
			require.Equal(t, test.usual, usual)
			require.Equal(t, test.others, others)
		})
	}
}

// settle makes calls of a size on a planner until nothing is left to try. Algorithms take what took
// says, and others 100.
func settle(t *testing.T, p *planner, coll dtype.Collective, bytes int64, took map[string]uint64) {
	t.Helper()
	for number := uint64(1); number < 1_000_000; number += 100 {
		turn := p.trials.Turn(coll, bytes, number)
		if turn.Agree {
			p.trials.Agree(p.trials.Times(), 0)
			turn = p.trials.Turn(coll, bytes, number)
		}
		if turn.Trial {
			if time, known := took[p.names[turn.Algorithm].Name]; known {
				p.trials.Took(time)
			} else {
				p.trials.Took(100)
			}
		}
		if turn.Until == online.Never {
			return
		}
	}
	t.Fatal("it never settles")
}

// What has won is chosen, and written: a group that reads the file chooses the same at every size
// up to the largest that was tried.
func TestOnlineRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "won.table")
	require.NoError(t, os.WriteFile(file, []byte(tune.Header+`
broadcast   4    yes  4    1K  flat
broadcast   2-8  any  any  1K  chain
`), 0o600))
	on := topo.Spread(4, 4)
	p := newPlanner(&GroupOptions{Determinism: 2}, nil, on)
	p.tryOnline(exec.PlanChannels)
	p.trials.write = func(rows []tune.Row) { require.NoError(t, keepRows(file, rows)) }
	chosen := func(coll dtype.Collective, bytes int64) string { return p.names[p.Choose(coll, bytes)].Name }

	settle(t, p, dtype.AllGather, 1<<20, map[string]uint64{"pairwise": 80})
	settle(t, p, dtype.Broadcast, 200, map[string]uint64{"flat": 70})
	settle(t, p, dtype.Broadcast, 1<<20, map[string]uint64{"chain": 95, "double_binary_tree": 100})
	require.Equal(t, []string{"ring", "pairwise", "pairwise", "ring"}, []string{
		chosen(dtype.AllGather, 1<<19), chosen(dtype.AllGather, 1<<19+1), chosen(dtype.AllGather, 1<<20),
		chosen(dtype.AllGather, 1<<20+1)})
	require.Equal(t, []string{"binomial", "flat", "binomial"}, []string{
		chosen(dtype.Broadcast, 128), chosen(dtype.Broadcast, 256), chosen(dtype.Broadcast, 257)})
	require.Zero(t, testing.AllocsPerRun(100, func() { p.trials.Turn(dtype.Broadcast, 1<<20, 1<<40) }))

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	table, err := tune.ParseTable(text)
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "broadcast       2-8    any  any       1K  chain")
	read := newPlanner(&GroupOptions{Determinism: 2}, nil, on)
	read.wishes.Table = table
	for bytes := int64(1); bytes <= 256; bytes++ {
		require.Equal(t, chosen(dtype.Broadcast, bytes), read.names[read.Choose(dtype.Broadcast, bytes)].Name)
	}
	for bytes := int64(1); bytes <= 4<<20; bytes = bytes*5/4 + 1 {
		require.Equal(t, chosen(dtype.AllGather, bytes), read.names[read.Choose(dtype.AllGather, bytes)].Name)
	}

	require.NoError(t, os.WriteFile(file, []byte("notes"), 0o600))
	require.ErrorContains(t, keepRows(file, p.trials.rows()), "GOCCL_TUNE_OUTPUT="+file+" is left as it is")
	require.ErrorContains(t, keepRows(filepath.Join(t.TempDir(), "no", "file"), p.trials.rows()), "GOCCL_TUNE_OUTPUT")
}

// At INFO rank 0 says what was tried, and at TRACE every rank in which calls.
func TestOnlineIsPrinted(t *testing.T) {
	soon(t)
	var calls []groupCall
	for range 40 {
		calls = append(calls, sum(1<<18))
	}
	said := map[string]int{}
	for _, line := range printed(t, func() { makeCalls(t, GroupOptions{Tune: "online", Debug: "TRACE"}, calls...) }) {
		for _, pattern := range []string{
			`^INFO rank 0 group local: all_reduce of 524289 to 1048576 bytes: plan one_shot_window was tried [12] times ` +
				`and took \d[\d.]*[µm]?s, in place of two_shot_window, which took \d[\d.]*[µm]?s: ` +
				`(which stays|and runs from now on; as a row: all_reduce 2 (yes|no) 1 1M one_shot_window)$`,
			`^TRACE rank [01] group local: all_reduce of 1048576 bytes: plan one_shot_window, a trial$`,
			` was tried `,
		} {
			if regexp.MustCompile(pattern).MatchString(line) {
				said[pattern[:5]]++
			}
		}
	}
	require.Equal(t, 1, said["^INFO"], "%v", said)
	require.Equal(t, 1, said[" was "], "the plan of a trial is no choice")
	require.GreaterOrEqual(t, said["^TRAC"], 8)
}

// A group that is smaller has trials of its own, from the beginning.
func TestOnlineAfterShrink(t *testing.T) {
	soon(t)
	comms := onHosts(t, topo.OnHosts(0, 1, 2), GroupOptions{Tune: "online"})
	randomCalls(t, comms, 1, 60)
	require.NoError(t, comms[2].Close())
	smaller := make([]*Communicator, 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	onAll(t, smaller, func(rank int) (err error) {
		smaller[rank], _, err = comms[rank].Shrink(ctx, 2)
		return err
	})
	seen := watch(smaller[0])
	randomCalls(t, smaller, 1, 200)
	require.NotEmpty(t, *seen)
}

// Groups for devices, whose calls are moved in pieces, have no trials.
func TestOnlineIsNotForDevices(t *testing.T) {
	node, err := NewNode(NodeOptions{})
	require.NoError(t, err)
	defer node.Close()
	for _, device := range []bool{false, true} {
		e, err := node.Open(Config{Name: "d", Size: 2, Device: device, Options: GroupOptions{Tune: "online"}})
		require.NoError(t, err)
		p, _ := e.planner(topo.Spread(2, 2))
		require.Equal(t, device, p.trials == nil)
	}
}
