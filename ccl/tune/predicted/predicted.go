// Package predicted says how long calls take, by what their parts cost: it simulates the programs
// that run (package sim), with a table of costs (package cost).
package predicted

import (
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/network"
)

// Predictor predicts calls of one group. It must not be used concurrently.
type Predictor struct {
	on      *topo.Group
	costs   *cost.Table
	network *network.Topology
	sim     *sim.Simulator
	timed   map[shape]program.Timed
	rests   bool    // the network has been idle
	most    int     // as sim.Options.Most
	busiest float64 // seconds that a call keeps the busiest link busy, in the last simulation
}

// shape is what the form of a call depends on.
type shape struct {
	coll              dtype.Collective
	algorithm         string
	elements, element int
}

// New returns the Predictor of a group, which must not change afterwards. If the costs change,
// Refresh must be called.
func New(on *topo.Group, costs *cost.Table) (*Predictor, error) {
	p := &Predictor{on: on, costs: costs, timed: map[shape]program.Timed{}}
	return p, p.Refresh()
}

// Refresh makes the network anew, of costs that have changed.
func (p *Predictor) Refresh() (err error) {
	p.network = sim.Network(p.on, p.costs)
	p.sim, err = sim.New(p.network)
	return err
}

// Call returns how long one of a number of calls takes that follow one another, with that many
// bytes, as package tune counts them, in elements of so many bytes. calls 0 is for very many.
func (p *Predictor) Call(coll dtype.Collective, algorithm string, bytes int64, element, calls int) (float64, error) {
	elements := int(bytes / int64(element))
	if coll.PerRank() {
		elements /= p.on.Size()
	}
	runs, err := p.form(shape{coll, algorithm, elements, element})
	if err != nil {
		return 0, err
	}
	seconds, err := p.steady(&runs, elements, element, calls)
	if err != nil || !runs.Counts {
		return seconds, err
	}
	ranks := int64(p.on.Size())
	lengths, err := p.Call(dtype.AllGather, gathersLengths, ranks*ranks*lengthBytes, lengthBytes, calls)
	return seconds + lengths, err
}

// The lengths of blocks are exchanged as numbers of so many bytes, by an algorithm for few bytes.
const (
	gathersLengths = "direct"
	lengthBytes    = 8
)

// Alone returns how long a call takes before and after which there are none.
func (p *Predictor) Alone(coll dtype.Collective, algorithm string, bytes int64, element int) (float64, error) {
	p.rests = true
	defer func() { p.rests = false }()
	return p.Call(coll, algorithm, bytes, element, 1)
}

// PingPong returns how long a message takes there, or back, in a group of two ranks.
func (p *Predictor) PingPong(bytes int64, calls int) (float64, error) {
	seconds, err := p.steady(&program.Timed{Plan: pingPong, Pieces: 1}, int(bytes), 1, calls)
	return seconds / 2, err
}

// pingPong is a plan of two ranks, in the form of one that exists.
var pingPong = &plan.Plan{Name: "ping_pong", Split: 1, Chans: 1, Needs: plan.Messages,
	Spec: plan.Spec{Coll: dtype.AllGather, Ranks: 2},
	Program: func(rank int) plan.Program {
		peer := 1 - rank
		steps := []plan.Step{
			{Kind: plan.Send, Peer: peer, Src: []plan.Ref{{Buf: plan.In, N: 1}}},
			{Kind: plan.Recv, Peer: peer, Dst: plan.Ref{Buf: plan.Out, At: peer, N: 1}},
		}
		if rank == 1 {
			steps[0], steps[1] = steps[1], steps[0]
		}
		return plan.Program{Lanes: [][]plan.Step{steps}}
	},
}

// InPlace reports whether predictions, and measurements beside them, are of calls that are in
// place: as torch makes those of a collective.
func InPlace(coll dtype.Collective) bool {
	return coll == dtype.AllReduce || coll == dtype.Broadcast || coll == dtype.Reduce
}

// form returns the form in which calls of a shape run.
func (p *Predictor) form(of shape) (program.Timed, error) {
	if made, ok := p.timed[of]; ok {
		return made, nil
	}
	a, err := algo.Find(of.coll, of.algorithm)
	if err != nil {
		return program.Timed{}, err
	}
	made, err := a.OnHosts(plan.Spec{Coll: of.coll, Ranks: p.on.Size()}, p.on)
	if err != nil {
		return program.Timed{}, err
	}
	timed, err := program.AsTimed(made, p.on.Slot(), of.elements, of.element)
	if err == nil {
		p.timed[of] = timed
	}
	return timed, err
}

// simulated is the most calls that are simulated. What the later of them take longer, the others
// take as well.
const simulated = 12

// steady returns the mean time of a number of calls.
func (p *Predictor) steady(runs *program.Timed, elements, element, calls int) (float64, error) {
	run := func(calls int) (float64, error) {
		r, err := p.sim.Run(runs.Plan, sim.Options{Elements: elements / runs.Pieces, ElementBytes: element,
			Costs: p.costs, On: p.on, Calls: calls * runs.Pieces, Ahead: runs.Ahead, Rests: p.rests, Most: p.most,
			InPlace: InPlace(runs.Plan.Spec.Coll)})
		if err != nil {
			return 0, err
		}
		p.busiest = 0
		for l, bytes := range r.LinkBytes {
			class := &p.network.Classes[p.network.Links[l].Class]
			p.busiest = max(p.busiest, float64(bytes)/class.Bandwidth/float64(calls))
		}
		return r.Makespan, nil
	}
	if calls > 0 && calls <= simulated {
		all, err := run(calls)
		return all / float64(calls), err
	}
	half, err := run(simulated / 2)
	if err != nil {
		return 0, err
	}
	all, err := run(simulated)
	if err != nil {
		return 0, err
	}
	// The bursts of links may last for the calls that are simulated, but not for all.
	each := max(p.busiest, (all-half)/(simulated-simulated/2))
	if calls == 0 {
		return each, nil
	}
	return (all + each*float64(calls-simulated)) / float64(calls), nil
}
