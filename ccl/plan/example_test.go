package plan_test

import (
	"fmt"

	"github.com/goccl/goccl/ccl/plan"
)

// Two ranks exchange their blocks: an all_gather. Steps of a lane run in order; a send and the recv
// of the peer are one message.
func ExampleParse() {
	p, err := plan.Parse([]byte(`goccl plan format 2
plan swap all_gather ranks=2 split=1 chans=1 flags=0 win=0 needs=messages alias=none
rank 0
  lane 0
    0 copy out[0] = in[0]
    1 send in[0] to 1
    2 recv out[1] from 1
rank 1
  lane 0
    0 copy out[1] = in[0]
    1 send in[0] to 0
    2 recv out[0] from 0
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	prog := p.Program(1)
	for _, step := range prog.Lanes[0] {
		does := step.Kind.Traits()
		fmt.Println(step.String(), "| sends:", does.Sends, "receives:", does.Receives)
	}
	// Output:
	// copy out[1] = in[0] | sends: false receives: false
	// send in[0] to 0 | sends: true receives: false
	// recv out[0] from 0 | sends: false receives: true
}
