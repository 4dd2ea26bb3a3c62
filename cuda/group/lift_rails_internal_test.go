package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
)

// The same holds for plans with messages between hosts: each stream becomes a lane, and what a
// stream waits for comes before it.
func TestEnqueuedBetweenHostsIsProven(t *testing.T) {
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
		for _, outer := range []string{"ring", "direct"} {
			for _, hosts := range [][]int{{0, 0, 1, 1}, {0, 1, 0, 1, 1, 0}, {0, 0, 1, 1, 2, 2},
				{0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}} {
				t.Run(fmt.Sprint(coll, " ", outer, " on ", hosts), func(t *testing.T) {
					op := enqueued(t, onHosts(t, coll, outer, topo.OnHosts(hosts...)), tapedRails)
					_, err := verify.Plan(op.Plan, verify.Options{})
					require.NoError(t, err)
					require.NoError(t, verify.Sequence([]verify.Operation{op, op, op, op}, verify.Options{}))
				})
			}
		}
	}
}

// A step or a wait for another stream that is missing is found.
func TestEnqueuedBetweenHostsIsProvenWrong(t *testing.T) {
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
		whole := enqueued(t, onHosts(t, coll, "ring", topo.Spread(4, 2)), tapedRails)
		provenWrong(t, whole)
		waits, lanes := 0, whole.Plan.Program(1).Lanes
		for l, lane := range lanes {
			for i := range lane {
				for k, after := range lane[i].After {
					if lane[i].Kind == plan.Recv && lanes[after.Lane][after.Step].Kind == plan.Send {
						continue // it follows from the messages, too
					}
					waits++
					lame := *whole.Plan
					lame.Program = func(rank int) plan.Program {
						prog := whole.Plan.Program(rank)
						if rank == 1 {
							prog.Lanes = append([][]plan.Step(nil), prog.Lanes...)
							prog.Lanes[l] = append([]plan.Step(nil), prog.Lanes[l]...)
							step := &prog.Lanes[l][i]
							step.After = append(append([]plan.Point(nil), step.After[:k]...), step.After[k+1:]...)
						}
						return prog
					}
					_, err := verify.Plan(&lame, verify.Options{})
					require.Error(t, err, "%v: lane %d, step %d does not wait for %v", coll, l, i, after)
				}
			}
		}
		require.Positive(t, waits)
	}
}

func onHosts(t *testing.T, coll dtype.Collective, outer string, group *topo.Group) *plan.Plan {
	a, err := algo.Find(coll, "hierarchical.window."+outer)
	require.NoError(t, err)
	p, err := a.OnHosts(plan.Spec{Coll: coll, Ranks: group.Size()}, group)
	require.NoError(t, err)
	return p
}

// rope is a stream of messages that notes what it is given.
type rope struct {
	cuda.Stream
	s     *tape
	lane  int
	peer  int
	steps []plan.Step
	waits []*knot // of the next step
	all   [][]*knot
}

// knot is an event: a place in a stream.
type knot struct {
	cuda.Event
	s *tape
	r *rope // nil: the stream of the windows
	n int   // events before it there
}

func (k *knot) Record(on cuda.Stream) error {
	switch s := on.(type) {
	case *tape:
		k.s, k.r, k.n = s, nil, len(s.events)
	case *rope:
		k.s, k.r, k.n = s.s, s, len(s.steps)
	}
	return nil
}

// point returns the step before the place.
func (k *knot) point() plan.Point {
	if k.r != nil {
		return plan.Point{Lane: k.r.lane, Step: k.n - 1}
	}
	if k.n == 0 {
		return plan.Point{Step: -1}
	}
	return plan.Point{Step: k.s.counts[k.n-1] - 1}
}

func (s *tape) Wait(e cuda.Event) error {
	at := *e.(*knot)
	s.events = append(s.events, &event{after: &at})
	return nil
}

func (r *rope) Wait(e cuda.Event) error {
	at := *e.(*knot)
	r.waits = append(r.waits, &at)
	return nil
}

func (r *rope) Words([]cuda.WordOp) error { return nil }

// slotBase is where the slots of messages are.
const slotBase = cuda.Ptr(1 << 44)

func (r *rope) Copy(to, from cuda.Ptr, bytes int) error {
	step := plan.Step{Kind: plan.Send, Peer: r.peer}
	if from >= slotBase {
		step.Kind = plan.Recv
		step.Dst, _ = r.s.ref(to)
		require.EqualValues(r.s.t, headBytes, from%page.Align)
	} else {
		src, _ := r.s.ref(from)
		step.Src = []plan.Ref{src}
		require.EqualValues(r.s.t, headBytes, to%page.Align)
	}
	r.steps, r.all, r.waits = append(r.steps, step), append(r.all, r.waits), nil
	return nil
}

// messages returns the lanes of messages. Those of lane 0 are counted by then.
func (s *tape) messages() (lanes [][]plan.Step) {
	for _, r := range s.ropes {
		for i, waits := range r.all {
			for _, k := range waits {
				if point := k.point(); point.Step >= 0 {
					r.steps[i].After = append(r.steps[i].After, point)
				}
			}
		}
		lanes = append(lanes, r.steps)
	}
	return lanes
}

// knots makes events.
type knots struct{ cuda.Context }

func (knots) NewEvent() (cuda.Event, error) { return new(knot), nil }

// slotMemory and tmpMemory are memory that only has an address.
type slotMemory struct{ cuda.Registered }

func (slotMemory) Ptr() cuda.Ptr { return slotBase }

type tmpMemory struct{ cuda.Memory }

func (tmpMemory) Ptr() cuda.Ptr { return 1 << 43 }

// tapedRails enqueues the part of a rank in a plan with messages.
func tapedRails(t *testing.T, p *plan.Plan, rank int) *tape {
	streams, err := program.Streams(p)
	require.NoError(t, err)
	s := newTape(t, p, rank, plain)
	s.plan = streams
	w, g := s.w, s.w.g
	g.ctx = knots{}
	g.staged = newStaged(g)
	g.staged.memory = slotMemory{}
	r := &rails{w: w, memory: tmpMemory{}, orders: map[*program.Lowered]*order{},
		to: make([]*pipeline, g.size), from: make([]*pipeline, g.size)}
	w.peers = nil
	used := map[int]bool{} // whose windows are read
	for _, lane := range p.Program(rank).Lanes {
		for _, step := range lane {
			if step.Kind == plan.Wait {
				used[step.Peer] = true
			}
		}
	}
	for peer := range g.size {
		if used[peer] {
			w.peers = append(w.peers, peer)
		}
	}
	at := 0
	for l, lane := range streams.Program(rank).Lanes[1:] {
		peer, to := lane[0].Peer, &rope{s: s, lane: l + 1, peer: lane[0].Peer}
		line := &pipeline{g: g, st: g.staged, failed: w.failed, bytes: leastMessage, slots: make([]slot, messageSlots)}
		for i := range line.slots {
			line.slots[i].at = at
			at += leastMessage
		}
		if lane[0].Kind == plan.Send {
			line.toHost, r.to[peer] = direction{used: true, stream: to}, line
		} else {
			line.toDevice, r.from[peer] = direction{used: true, stream: to}, line
		}
		s.ropes = append(s.ropes, to)
	}
	low, err := program.Lower(streams, &w.Room)
	require.NoError(t, err)
	require.True(t, low.Words)
	r.learn(streams, low)
	w.forms = []form{r}
	o := &Op{g: g, call: s.call, first: 3, low: low}
	o.holders.Store(1)
	require.NoError(t, r.pieces(o))
	require.NoError(t, w.Flush())
	require.Equal(t, 1, o.cut.pieces)
	return s
}
