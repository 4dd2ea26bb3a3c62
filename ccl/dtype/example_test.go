package dtype_test

import (
	"fmt"

	"github.com/goccl/goccl/ccl/dtype"
)

// Not every operator is defined for every element type.
func ExampleReducible() {
	fmt.Println(dtype.Reducible(dtype.BF16, dtype.Sum))
	fmt.Println(dtype.Reducible(dtype.C64, dtype.Max))
	// Output:
	// <nil>
	// reduction max is not defined for c64
}
