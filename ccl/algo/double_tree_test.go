package algo

import (
	"slices"
	"testing"
)

// TestDoubleTree checks that both trees reach all nodes, that parents and children agree, and that
// no node passes on data in both.
func TestDoubleTree(t *testing.T) {
	for k := 2; k <= 130; k++ {
		for half := range 2 {
			for v := 0; v <= k; v++ {
				node := doubleTree(v, k)[half]
				for _, child := range node.children() {
					if up := doubleTree(child, k)[half].parent; up != v {
						t.Fatalf("%d nodes, tree %d: %d is a child of %d, but its parent is %d", k, half, child, v, up)
					}
				}
				if v == 0 {
					if node.parent != -1 || len(node.children()) != 1 {
						t.Fatalf("%d nodes, tree %d: the root is %+v", k, half, node)
					}
					continue
				}
				if !slices.Contains(doubleTree(node.parent, k)[half].children(), v) {
					t.Fatalf("%d nodes, tree %d: %d is no child of its parent %d", k, half, v, node.parent)
				}
				height := 0
				for u := v; u != 0; height++ {
					u = doubleTree(u, k)[half].parent
				}
				if height > treeHeight(k)+1 {
					t.Fatalf("%d nodes, tree %d: %d is %d below the root", k, half, v, height)
				}
			}
		}
		for v := 1; v <= k; v++ {
			if both := doubleTree(v, k); len(both[0].children()) > 0 && len(both[1].children()) > 0 {
				t.Errorf("%d nodes: %d has children in both trees", k, v)
			}
		}
	}
}

// TestFold checks that a seat is one rank or two consecutive ranks, and that the last of them is
// the rank that odd returns.
func TestFold(t *testing.T) {
	for n := 1; n <= 70; n++ {
		f := foldRanks(n)
		if f.start(0) != 0 || f.start(f.p) != n || f.p > n || 2*f.p <= n {
			t.Errorf("%d ranks: %+v", n, f)
		}
		for rank := range n {
			seat := f.seat(rank)
			if rank < f.start(seat) || rank > f.odd(seat) || f.paired(seat) != (f.odd(seat) > f.start(seat)) {
				t.Errorf("%d ranks: rank %d is in seat %d, which has ranks %d to %d",
					n, rank, seat, f.start(seat), f.odd(seat))
			}
		}
	}
}

// TestPAT checks that the hops reach every place once, from places that have been reached before.
func TestPAT(t *testing.T) {
	for n := 1; n <= 130; n++ {
		p := newPAT(n)
		if len(p.hops) != ceilLog2(n) || p.order[p.root] != 0 || len(p.order) != n {
			t.Fatalf("%d ranks: %+v", n, p)
		}
		there := map[int]bool{0: true}
		for _, hop := range p.hops {
			for i := range hop.from.n {
				from, to := p.order[hop.from.at+i], p.order[hop.to.at+i]
				if !there[from] || there[to] || to != from+hop.dist {
					t.Fatalf("%d ranks: place %d sends to %d in the hop %+v", n, from, to, hop)
				}
				there[to] = true
			}
		}
		if len(there) != n {
			t.Fatalf("%d ranks: %d places are reached", n, len(there))
		}
	}
}
