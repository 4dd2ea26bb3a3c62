package draw_test

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// A plan as a picture: rows are ranks, columns are rounds, arrows are messages.
func ExampleSVG() {
	a, err := algo.Find(dtype.Broadcast, "binomial")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := a.Make(plan.Spec{Coll: dtype.Broadcast, Ranks: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	picture, err := draw.SVG(p, draw.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.HasPrefix(picture, "<svg "), strings.Count(picture, "<path"), "paths")
	// Output:
	// true 24 paths
}
