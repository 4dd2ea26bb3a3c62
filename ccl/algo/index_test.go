package algo

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	for _, c := range [][3]int{{0, 1, 0}, {5, 3, 2}, {-1, 4, 3}, {-9, 4, 3}, {4, 4, 0}, {-4, 4, 0}} {
		if got := wrap(c[0], c[1]); got != c[2] {
			t.Errorf("wrap(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestCeilLog2(t *testing.T) {
	for n := 1; n <= 1025; n++ {
		k := ceilLog2(n)
		if 1<<k < n || k > 0 && 1<<(k-1) >= n {
			t.Errorf("ceilLog2(%d) = %d", n, k)
		}
	}
}

// TestBinomialTree checks what the comment in index.go states about the tree, for up to 70 ranks.
func TestBinomialTree(t *testing.T) {
	for n := 1; n <= 70; n++ {
		parents := make([]int, n)
		for i := range parents {
			parents[i] = -1
		}
		for v := range n {
			children := binomialChildren(v, n)
			if !slices.IsSorted(children) {
				t.Errorf("n=%d: children %v of %d are not ordered", n, children, v)
			}
			if len(children) > ceilLog2(n) {
				t.Errorf("n=%d: %d has %d children", n, v, len(children))
			}
			for _, c := range children {
				if parents[c] != -1 {
					t.Errorf("n=%d: %d has the parents %d and %d", n, c, parents[c], v)
				}
				parents[c] = v
				if binomialParent(c) != v {
					t.Errorf("n=%d: %d is a child of %d, but its parent is %d", n, c, v, binomialParent(c))
				}
			}
			if got, want := subtree(v, n), span(v, n); !slices.Equal(got, want) {
				t.Errorf("n=%d: the subtree of %d is %v, want %v", n, v, got, want)
			}
		}
		for v := 1; v < n; v++ {
			if parents[v] == -1 {
				t.Errorf("n=%d: %d is nobody's child", n, v)
			}
		}
	}
}

// subtree returns v and the ranks below it, in the order in which a reduction takes them.
func subtree(v, n int) []int {
	all := []int{v}
	for _, c := range binomialChildren(v, n) {
		all = append(all, subtree(c, n)...)
	}
	return all
}

func span(v, n int) []int {
	end := n
	if v > 0 {
		end = min(n, v+v&-v)
	}
	var all []int
	for i := v; i < end; i++ {
		all = append(all, i)
	}
	return all
}
