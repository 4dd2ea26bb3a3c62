package verify_test

import (
	"errors"
	"fmt"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// A plan is proven before it runs: for all data, and all orders in which its messages may arrive.
func ExamplePlan() {
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
	report, err := verify.Plan(p, verify.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Messages, "messages in", report.Rounds, "rounds; a rank sends", report.Ranks[0].Sent,
		"chunks of", report.Split)
	// Output:
	// 24 messages in 6 rounds; a rank sends 6 chunks of 4
}

// A wrong plan gets the shortest explanation: here nobody receives what rank 0 sends.
func ExampleCounterexample() {
	p, err := plan.Parse([]byte(`goccl plan format 2
plan broken broadcast ranks=2 root=0 split=1 chans=1 flags=0 win=0 needs=messages alias=none
rank 0
  lane 0
    0 copy out[0] = in[0]
    1 send in[0] to 1
rank 1
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = verify.Plan(p, verify.Options{})
	var found *verify.Counterexample
	if errors.As(err, &found) {
		fmt.Println(found.Reason)
		fmt.Println(found.Text)
	}
	// Output:
	// unreceived message
	// rank 1 does not receive the message of rank 0, lane 0, step 1 (send in[0] to 1)
}
