package sim

import (
	"math"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/network"
)

// maxSpans bounds the length of a timeline.
const maxSpans = 1 << 24

// Options holds the parameters of a simulation.
type Options struct {
	Elements     int // elements of a block
	ElementBytes int // 0 means 1
	// Counts returns the elements of the block of a pair of ranks (plan.Extent), if blocks differ;
	// nil means Elements.
	Counts    func(from, to int) int
	Gamma     float64 // seconds per byte of arithmetic
	Copy      float64 // seconds per byte of a copy
	Placement []int   // for each rank of the plan, its rank in the topology; nil means the same number
	Full      bool    // simulate every rank separately, even if all do the same
	Timeline  bool    // fill Result.Timeline; implies Full

	// Costs is what the executor pays; nil for Hockney's model, where only messages and arithmetic
	// take time. Of the network, the topology has latencies and bandwidths.
	Costs *cost.Table
	On    *topo.Group // with Costs: which ranks share memory, and which share cores
	Calls int         // with Costs: so many calls, one behind the other; 0 means 1
	Ahead int         // with Costs: a rank begins a call when all have ended the one so many before; 0: at once
	// InPlace, with Costs: In and Out share the blocks that both have. A copy of such a block does
	// nothing, and a plan that cannot run like that begins with a copy of In.
	InPlace bool
	Rests   bool // with Costs: the network has been idle, and the bursts of its links are there
	Most    int  // how many events may happen; 0 for any number. A longer simulation ends with ErrLong
}

// ErrLong is the error of a simulation in which more happens than Options.Most.
var ErrLong = fault.New(fault.NotSupported, "the simulation takes too long")

// Span is the time of a step. It starts when the step before it in its lane has ended and its
// dependences are met.
type Span struct {
	Rank, Lane, Step int32 // loops unrolled
	Peer             int32 // -1: none
	Kind             plan.Kind
	Slot             uint8 // channel or flag
	Bytes            int64 // of one operand
	Start, End       float64
}

// Result holds the results of a simulation. Times are in seconds from the start.
type Result struct {
	Makespan  float64
	Finish    []float64 // of each rank
	LinkBytes []int64   // bytes that crossed each link of the topology
	LinkBusy  []float64 // seconds in which each link carried a flow
	Messages  int64
	Bytes     int64   // delivered, in all messages
	Sent      []int64 // bytes that each rank sent to others, including those that others fetched
	Received  []int64 // bytes that each rank received
	Simulated int     // number of ranks that stood for all
	Peers     int     // the most ranks with which one of them communicates
	Timeline  []Span  // in the order of their ends
}

// Simulator simulates plans over one topology. It caches paths and must not be used concurrently.
type Simulator struct {
	topology *network.Topology
	router   *network.Router
}

// New checks the topology, which must not change afterwards, and returns a Simulator for it.
func New(t *network.Topology) (*Simulator, error) {
	r, err := network.NewRouter(t)
	if err != nil {
		return nil, err
	}
	return &Simulator{t, r}, nil
}

// Run simulates p over t once.
func Run(p *plan.Plan, t *network.Topology, o Options) (*Result, error) {
	s, err := New(t)
	if err != nil {
		return nil, err
	}
	return s.Run(p, o)
}

// Run simulates p. The plan should be a verified one; if it never ends, the error names the step
// that hangs.
func (s *Simulator) Run(p *plan.Plan, o Options) (*Result, error) {
	if o.ElementBytes == 0 {
		o.ElementBytes = 1
	}
	if err := s.check(p, &o); err != nil {
		return nil, err
	}
	e := &engine{p: p, o: &o, router: s.router, sizes: newSizes(p, &o)}
	if err := e.prepare(); err != nil {
		return nil, err
	}
	if err := e.run(); err != nil {
		return nil, err
	}
	return e.result(), nil
}

func (s *Simulator) check(p *plan.Plan, o *Options) error {
	if err := p.Spec.Validate(); err != nil {
		return fault.Wrap(fault.Invalid, err, "simulating plan %q", p.Name)
	}
	n := p.Spec.Ranks
	switch {
	case p.Split < 1 || p.Program == nil:
		return wrong(p, "it has no programs; check it with Plan.Validate")
	case o.Elements < 0 || o.ElementBytes < 1 || o.Elements > math.MaxInt64/o.ElementBytes/(2*n):
		return wrong(p, "%d elements of %d bytes a block", o.Elements, o.ElementBytes)
	case !(o.Gamma >= 0) || !(o.Copy >= 0) || math.IsInf(o.Gamma+o.Copy, 0):
		return wrong(p, "gamma %v and copy %v seconds a byte, want 0 or more", o.Gamma, o.Copy)
	case o.Placement == nil && s.router.Ranks() < n:
		return wrong(p, "topology %s has %d ranks only; take a larger one, or fewer ranks",
			s.router.Topology().Name, s.router.Ranks())
	case o.Placement != nil && len(o.Placement) != n:
		return wrong(p, "%d ranks are placed", len(o.Placement))
	}
	if o.Costs != nil {
		if err := o.Costs.Validate(); err != nil {
			return fault.Wrap(fault.Invalid, err, "simulating plan %q", p.Name)
		}
		if o.On == nil || o.On.Size() != n || o.Placement != nil || o.Calls < 0 || o.Ahead < 0 {
			return wrong(p, "with costs, a simulation needs the group (Options.On) of its %d ranks, no placement, and "+
				"numbers of calls that are not negative", n)
		}
	}
	seen := make([]bool, s.router.Ranks())
	for rank, at := range o.Placement {
		if at < 0 || at >= len(seen) || seen[at] {
			return wrong(p, "rank %d is placed at rank %d of the topology, which has %d; two ranks cannot share one",
				rank, at, len(seen))
		}
		seen[at] = true
	}
	return nil
}
