package tune_test

import (
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
)

// Which algorithm a call takes follows from what all ranks know, so all choose the same one.
func ExampleChoose() {
	on := topo.Spread(8, 2) // eight ranks on two hosts
	for _, bytes := range []int64{8, 64 << 10, 64 << 20} {
		fmt.Println(bytes, tune.Choose(tune.Call{Coll: dtype.AllReduce, Bytes: bytes}, on, &tune.Wishes{}))
	}
	wish := tune.Wishes{Override: map[dtype.Collective]string{dtype.AllReduce: "ring"}}
	fmt.Println("wished:", tune.Choose(tune.Call{Coll: dtype.AllReduce, Bytes: 8}, on, &wish))
	// Output:
	// 8 recursive_doubling
	// 65536 hierarchical.direct.direct
	// 67108864 hierarchical.direct.ring
	// wished: ring
}
