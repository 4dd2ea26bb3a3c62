package algo

import (
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
)

// OnHosts makes a plan for a group whose ranks are spread over hosts. An algorithm with levels gets
// them as its grid: the hosts, or the sites where each rank is a host; one with three levels gets
// both. It gets no grid if they do not fit it: only all_reduce runs on hosts of unequal size, three
// levels need sites of as many hosts, and all_to_all needs hosts of consecutive ranks. A plan that
// reads windows is refused if ranks of different hosts would read each other's.
//
// In an all_reduce on hosts of unequal size, the grid has as many ranks of each host as the
// smallest host has. Every other rank first gives its block to one of these, and gets the result
// from it at the end.
func (a Algorithm) OnHosts(s plan.Spec, on *topo.Group) (*plan.Plan, error) {
	groups := groupsOf(on)
	if a.Grid == nil || groups == nil {
		return a.withoutGrid(s, on)
	}
	least, even := len(groups[0]), true
	for _, ranks := range groups {
		even = even && len(ranks) == len(groups[0])
		least = min(least, len(ranks))
	}
	var grid []int                   // ranks, by position in the grid
	others := make([][]int, s.Ranks) // by rank of the grid: those for which it acts
	for _, ranks := range groups {
		grid = append(grid, ranks[:least]...)
		for i, rank := range ranks[least:] {
			actor := ranks[i%least]
			others[actor] = append(others[actor], rank)
		}
	}
	shape := plan.Shape{least, len(groups)}
	if ranks, hosts, sites, ok := on.Grid(); ok && on.Levels() && sites > 1 && a.levels() == plan.MaxLevels {
		grid, shape = siteBySite(on), plan.Shape{ranks, hosts, sites}
	}
	consecutive := slices.IsSorted(grid)
	if !even && s.Coll != dtype.AllReduce || !consecutive && s.Coll == dtype.AllToAll {
		return a.withoutGrid(s, on)
	}
	p, err := a.Make(plan.Spec{Coll: s.Coll, Ranks: len(grid), Shape: shape})
	if err == nil && !on.Levels() {
		err = OnOneHost(p, on)
	}
	if err != nil || even && consecutive {
		return p, err
	}
	placed := *p
	placed.Spec = s
	placed.Program = func(rank int) plan.Program {
		at := slices.Index(grid, rank)
		if at < 0 {
			at = slices.IndexFunc(others, func(ranks []int) bool { return slices.Contains(ranks, rank) })
			return left(p.Split, at)
		}
		prog := p.Program(at)
		made := prog.Flat()
		renumber(&made, p, at, grid)
		if len(others[rank]) > 0 {
			act(&made, p.Split, others[rank])
		}
		return made
	}
	return &placed, nil
}

// groupsOf returns the ranks of each host, or of each site where each rank is a host, nil if these
// are no levels.
func groupsOf(on *topo.Group) [][]int {
	if on.Levels() {
		return on.Hosts()
	}
	if sites := len(on.Sites()); sites > 1 && sites < on.Size() {
		return on.Sites()
	}
	return nil
}

// siteBySite returns the ranks of each host of each site.
func siteBySite(on *topo.Group) (ranks []int) {
	for _, site := range on.Sites() {
		for _, host := range on.Hosts() {
			if slices.Contains(site, host[0]) {
				ranks = append(ranks, host...)
			}
		}
	}
	return ranks
}

// levels returns the number of levels that the name of an algorithm tells apart.
func (a Algorithm) levels() int { return strings.Count(a.Name, ".") }

// withoutGrid makes a plan that does not know the hosts.
func (a Algorithm) withoutGrid(s plan.Spec, on *topo.Group) (*plan.Plan, error) {
	p, err := a.Make(s)
	if err == nil {
		err = OnOneHost(p, on)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// OnOneHost refuses a plan that reads windows, made without knowing the hosts, if the ranks do not
// all share memory.
func OnOneHost(p *plan.Plan, on *topo.Group) error {
	if p.Needs&plan.Gets == 0 || len(on.Hosts()) == 1 {
		return nil
	}
	return fault.New(fault.NotSupported, "plan %s reads windows of peers: it needs ranks that all share memory, "+
		"on one host and not by TCP; these are on %d hosts; choose another algorithm", p.Name, len(on.Hosts()))
}

// renumber replaces, in the program of rank at of p, each rank by its number in the larger group.
func renumber(prog *plan.Program, p *plan.Plan, at int, numbers []int) {
	each := [2]bool{ // In, Out: a block for each rank
		plan.In:  p.Spec.Coll.InBlocks(p.Spec.Ranks, at, p.Spec.Root) > 1,
		plan.Out: p.Spec.Coll.OutBlocks(p.Spec.Ranks, at, p.Spec.Root) > 1,
	}
	ref := func(r plan.Ref) plan.Ref {
		if r.N > 0 && (r.Buf == plan.In || r.Buf == plan.Out) && each[r.Buf] {
			block := r.At / p.Split
			r.At += (numbers[block] - block) * p.Split
		}
		return r
	}
	lengths := func(all []plan.Extent) []plan.Extent {
		all = slices.Clone(all)
		for i := range all {
			if each[plan.In] || each[plan.Out] {
				all[i].From, all[i].To = numbers[all[i].From], numbers[all[i].To]
			}
		}
		return all
	}
	prog.Tmp, prog.Win = lengths(prog.Tmp), lengths(prog.Win)
	for l, lane := range prog.Lanes {
		lane = slices.Clone(lane)
		for i := range lane {
			s := &lane[i]
			s.Dst = ref(s.Dst)
			s.Src, s.From = slices.Clone(s.Src), slices.Clone(s.From)
			for k := range s.Src {
				s.Src[k] = ref(s.Src[k])
			}
			for k := range s.From {
				s.From[k] = numbers[s.From[k]]
			}
			if s.HasPeer() {
				s.Peer = numbers[s.Peer]
			}
		}
		prog.Lanes[l] = lane
	}
}

// left returns the program of a rank that is not in the grid.
func left(split, actor int) plan.Program {
	return plan.Program{Lanes: [][]plan.Step{{
		send(plan.Ref{Buf: plan.In, N: split}, actor), recv(plan.Ref{Buf: plan.Out, N: split}, actor),
	}}}
}

// act surrounds the program of a rank of the grid with what it does for others: what the program
// reads of In is the sum of their blocks and its own, in Tmp.
func act(prog *plan.Program, split int, others []int) {
	sum := plan.Ref{Buf: plan.Tmp, At: len(prog.Tmp), N: split}
	for part := range split {
		prog.Tmp = append(prog.Tmp, plan.Extent{Part: part})
	}
	before := []plan.Step{recvReduce(sum, plan.Ref{Buf: plan.In, N: split}, others[0])}
	for _, other := range others[1:] {
		before = append(before, recvReduce(sum, sum, other))
	}
	first := plan.Point{Step: len(before) - 1}
	var ends []plan.Point
	for l, lane := range prog.Lanes {
		for i := range lane {
			s := &lane[i]
			s.After = slices.Clone(s.After)
			for k := range s.After {
				if s.After[k].Lane == 0 {
					s.After[k].Step += len(before)
				}
			}
			for k, r := range s.Src {
				if r.Buf == plan.In {
					s.Src[k].Buf, s.Src[k].At = plan.Tmp, sum.At+r.At
				}
			}
		}
		if l > 0 && len(lane) > 0 {
			lane[0].After = addPoint(lane[0].After, l, first)
			ends = append(ends, plan.Point{Lane: l, Step: len(lane) - 1})
		}
	}
	if len(prog.Lanes) == 0 {
		prog.Lanes = [][]plan.Step{nil}
	}
	prog.Lanes[0] = append(before, prog.Lanes[0]...)
	for _, other := range others {
		prog.Lanes[0] = append(prog.Lanes[0], send(plan.Ref{Buf: plan.Out, N: split}, other, ends...))
	}
}
