package topo_test

import (
	"fmt"

	"github.com/goccl/goccl/ccl/topo"
)

// Ranks 0 and 2 are on one host, 1 and 3 on another.
func ExampleOnHosts() {
	g := topo.OnHosts(0, 1, 0, 1)
	fmt.Println(g.Hosts(), "even:", g.Even(), "in order:", g.InOrder())
	fmt.Println("beside rank 2:", g.Neighbours(2), "its rail:", g.Rails(2))
	// Output:
	// [[0 2] [1 3]] even: true in order: false
	// beside rank 2: [0] its rail: [3]
}
