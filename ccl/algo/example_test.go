package algo_test

import (
	"fmt"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// An algorithm makes a plan for any number of ranks.
func ExampleFind() {
	ring, err := algo.Find(dtype.AllReduce, "ring")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := ring.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Name, "for", p.Spec)
	fmt.Println("chunks of a block:", p.Split, "needs:", p.Needs)
	// Output:
	// ring for all_reduce on 4 ranks
	// chunks of a block: 4 needs: messages
}
