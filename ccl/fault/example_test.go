package fault_test

import (
	"errors"
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
)

// Errors have a class, for errors.Is, and name the ranks that caused them.
func ExampleError() {
	err := error(fault.Peer(fault.PeerLost, 3, "killed").
		In(fault.Label("job", 0, 4), "barrier, seq 7"))
	fmt.Println(err)
	var failure *fault.Error
	fmt.Println(errors.Is(err, fault.PeerLost), errors.As(err, &failure), failure.Culprits())
	// Output:
	// goccl: group job, rank 0 of 4: barrier, seq 7: peer lost (rank 3): killed [goccl E4]
	// true true [3]
}
