package network

import "slices"

// Branch is a node with those below it.
type Branch struct {
	Node  int
	Link  int // from the node to the one above it; -1 for a root
	Below []Branch
}

// Tree returns the network as trees, for people: from the memories of a machine, or from the switch
// with the most links, down to the ranks; and the links that the trees do not have, one direction
// of each. The network outside of machines, and ranks that only ranks lead to, are roots.
func (t *Topology) Tree() (roots []Branch, beside []int) {
	out := make([][]int, len(t.Nodes))
	for i, l := range t.Links {
		out[l.From] = append(out[l.From], i)
	}
	seen := make([]bool, len(t.Nodes))
	used := make([]bool, len(t.Links))
	above := make([]int, len(t.Nodes)) // the link from above; -1 for a root
	below := make([][]int, len(t.Nodes))
	spread := func(from []int) {
		for _, node := range from {
			seen[node], above[node] = true, -1
		}
		for queue := from; len(queue) > 0; queue = queue[1:] {
			for _, i := range out[queue[0]] {
				if to := t.Links[i].To; !seen[to] && !t.Nodes[queue[0]].Rank && t.Nodes[to].Part != Outside {
					seen[to], above[to], used[i] = true, i, true
					below[queue[0]] = append(below[queue[0]], to)
					queue = append(queue, to)
				}
			}
		}
	}
	first := t.tops(out)
	spread(slices.Clone(first))
	for node := range t.Nodes { // networks in parts, of ranks alone, and the one outside
		if !seen[node] {
			first = append(first, node)
			spread([]int{node})
		}
	}
	var branch func(node int) Branch
	branch = func(node int) Branch {
		b := Branch{Node: node, Link: above[node]}
		for _, each := range below[node] {
			b.Below = append(b.Below, branch(each))
		}
		return b
	}
	for _, node := range first {
		roots = append(roots, branch(node))
	}
	pair := map[[2]int]bool{}
	for i, l := range t.Links {
		if used[i] {
			pair[[2]int{l.From, l.To}], pair[[2]int{l.To, l.From}] = true, true
		}
	}
	for i, l := range t.Links {
		if !pair[[2]int{l.From, l.To}] {
			beside = append(beside, i)
			pair[[2]int{l.To, l.From}] = true
		}
	}
	return roots, beside
}

// tops returns where trees begin.
func (t *Topology) tops(out [][]int) (tops []int) {
	for node := range t.Nodes {
		if t.Nodes[node].Part == Memory {
			tops = append(tops, node)
		}
	}
	if tops != nil {
		return tops
	}
	most := 0
	for node := range t.Nodes {
		if n := &t.Nodes[node]; !n.Rank && n.Part != Outside && len(out[node]) > most {
			tops, most = []int{node}, len(out[node])
		}
	}
	return tops
}
