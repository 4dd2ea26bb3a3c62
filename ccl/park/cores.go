package park

import "runtime"

var cores = runtime.NumCPU()

// Cores is the number of cores this process may use at the same time.
func Cores() int { return cores }
