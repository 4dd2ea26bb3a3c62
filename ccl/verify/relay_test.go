package verify_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// relay creates a plan of an all_reduce next to random messages, which ranks pass on from and to
// chunks of Tmp in several lanes. The steps are listed in an order in which they could run; some of
// the after points that this order requires within a rank are missing.
func relay(rng *rand.Rand) *plan.Plan {
	const chunks = 3
	ranks, lanes := 2+rng.IntN(2), 2+rng.IntN(3)
	progs := make([]plan.Program, ranks)
	for r := range progs {
		first := make([]plan.Step, chunks)
		for i := range first {
			first[i] = plan.Step{Kind: plan.Copy, Dst: ref(plan.Tmp, i), Src: []plan.Ref{ref(plan.In, 0)}}
		}
		progs[r] = plan.Program{Tmp: make([]plan.Extent, chunks), Lanes: make([][]plan.Step, lanes+2)}
		progs[r].Lanes[0] = first
		for k := 1; k < ranks; k++ {
			to, from := (r+k)%ranks, (r+ranks-k)%ranks
			in, out := ref(plan.In, 0), ref(plan.Out, 0)
			send := plan.Step{Kind: plan.Send, Src: []plan.Ref{in}, Peer: to, Chan: 1}
			sum := plan.Step{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{out}, Peer: from, Chan: 1,
				Final: k == ranks-1}
			if k == 1 {
				sum.Src[0] = in
			}
			progs[r].Lanes[lanes] = append(progs[r].Lanes[lanes], send)
			progs[r].Lanes[lanes+1] = append(progs[r].Lanes[lanes+1], sum)
		}
	}
	at := func() (r, lane int, own plan.Ref) {
		own = plan.Ref{Buf: plan.Tmp, At: rng.IntN(chunks - 1), N: 1 + rng.IntN(2)}
		return rng.IntN(ranks), rng.IntN(lanes), own
	}
	// add appends a step to a lane and puts it after the steps of other lanes that use the same
	// memory, except for some that it omits at random.
	add := func(r, lane int, s plan.Step) {
		for other := range lanes {
			for i := len(progs[r].Lanes[other]) - 1; i >= 0 && other != lane; i-- {
				if before := &progs[r].Lanes[other][i]; conflict(before, &s) &&
					(i < chunks && other == 0 || rng.IntN(3) > 0) {
					s.After = append(s.After, plan.Point{Lane: other, Step: i})
					break
				}
			}
		}
		progs[r].Lanes[lane] = append(progs[r].Lanes[lane], s)
	}
	from, lane, own := at()
	for range 3 + rng.IntN(6) {
		to, toLane, dst := at()
		if to == from {
			to = (to + 1) % ranks
		}
		dst.N = own.N
		if rng.IntN(2) == 0 {
			dst = own
		}
		add(from, lane, plan.Step{Kind: plan.Send, Src: []plan.Ref{own}, Peer: to})
		recv := plan.Step{Kind: plan.Recv, Dst: dst, Peer: from}
		if rng.IntN(3) == 0 {
			recv.Kind, recv.Src = plan.RecvReduce, []plan.Ref{dst}
		}
		add(to, toLane, recv)
		if from, lane, own = to, rng.IntN(lanes), dst; rng.IntN(4) == 0 {
			from, lane, own = at()
		}
	}
	p := write(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks}, progs...)
	return p
}

// conflict reports whether two steps of a rank use the same chunk, and one of them writes it.
func conflict(a, b *plan.Step) bool {
	overlap := func(r, s plan.Ref) bool {
		return r.N > 0 && s.N > 0 && r.Buf == s.Buf && r.At < s.At+s.N && s.At < r.At+r.N
	}
	for _, s := range append(slices.Clone(b.Src), b.Dst) {
		if overlap(a.Dst, s) {
			return true
		}
	}
	return slices.ContainsFunc(a.Src, func(r plan.Ref) bool { return overlap(r, b.Dst) })
}

// TestRelays executes the accepted ones of many random plans: whatever the schedule, all memory has
// the same contents at the end.
func TestRelays(t *testing.T) {
	accepted, refused := 0, map[verify.Reason]int{}
	for seed := range uint64(mutantsEach()) * 50 {
		rng := rand.New(rand.NewPCG(seed, 19))
		p := relay(rng)
		if _, err := verify.Plan(p, verify.Options{Brief: true}); err != nil {
			refused[reasonOf(t, err)]++
			continue
		}
		accepted++
		want := ""
		for range 25 {
			x := newInterpreter(p, rand.New(rand.NewPCG(seed, 20)), false)
			x.rng, x.room, x.strict = rng, 1+rng.IntN(12), rng.IntN(3) == 0
			if x.strict {
				x.room = 1
			}
			require.NoError(t, x.run(), "seed %d\n%s", seed, p.Text())
			got := ""
			for _, m := range x.ranks {
				got += fmt.Sprint(m.buffers[plan.Tmp])
			}
			if want == "" {
				want = got
			}
			require.Equal(t, want, got, "seed %d: memory depends on the schedule\n%s", seed, p.Text())
		}
	}
	t.Logf("%d accepted, refused %v", accepted, refused)
	require.Greater(t, accepted, 5*mutantsEach())
	require.Greater(t, refused[verify.Race], mutantsEach())
	require.Greater(t, refused[verify.Unordered], mutantsEach())
}

func reasonOf(t *testing.T, err error) verify.Reason {
	var bad *verify.Counterexample
	require.ErrorAs(t, err, &bad)
	return bad.Reason
}
