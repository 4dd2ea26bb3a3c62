package sim_test

import (
	"fmt"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
)

// How long would an all_reduce of 64 MiB take on eight hosts at 100 Gbit/s?
func ExampleRun() {
	wire := network.Wire{Alpha: 2e-6, Bandwidth: 12.5e9}
	hosts := network.Uniform(8, wire)
	for _, name := range []string{"ring", "recursive_doubling"} {
		a, err := algo.Find(dtype.AllReduce, name)
		if err != nil {
			fmt.Println(err)
			return
		}
		p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 8})
		if err != nil {
			fmt.Println(err)
			return
		}
		result, err := sim.Run(p, hosts, sim.Options{Elements: 16 << 20, ElementBytes: 4})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %.1f ms, %d MiB sent by each rank\n", name, 1e3*result.Makespan, result.Sent[0]>>20)
	}
	// Output:
	// ring: 9.4 ms, 112 MiB sent by each rank
	// recursive_doubling: 16.1 ms, 192 MiB sent by each rank
}
