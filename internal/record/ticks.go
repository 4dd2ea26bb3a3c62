package record

import "time"

var start = time.Now()

// wallTicks returns nanoseconds of the kernel's clock.
func wallTicks() uint64 { return uint64(time.Since(start)) + 1 }
