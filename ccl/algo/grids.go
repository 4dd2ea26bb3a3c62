package algo

import (
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// Grids returns the shapes of n ranks with which an algorithm is to be proven: every grid for
// algorithms that use one, and none.
func (a Algorithm) Grids(n int) []plan.Shape {
	levels := strings.Count(a.Name, ".")
	switch {
	case levels > 0:
		return Shapes(n, levels)
	case a.Name == "hierarchical":
		return append([]plan.Shape{{}}, append(Shapes(n, 2), Shapes(n, 3)...)...)
	case strings.HasSuffix(a.Name, "2d"):
		return append([]plan.Shape{{}}, Shapes(n, 2)...)
	}
	return []plan.Shape{{}}
}

// Triples returns the grids on which every algorithm made of three others is to be proven. They are
// small, because there are hundreds of these algorithms; the large level is inside, in the middle
// or outside.
func Triples() []plan.Shape { return []plan.Shape{{2, 2, 2}, {3, 2, 2}, {2, 3, 2}, {2, 2, 3}} }
