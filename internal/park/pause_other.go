//go:build !amd64 && !arm64

package park

// Pause takes about as much time as n spin-wait hints.
//
//go:noinline
func Pause(n int) {
	for range n * 8 {
	}
}
