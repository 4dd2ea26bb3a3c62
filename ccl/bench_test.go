package ccl_test

import (
	"fmt"
	"testing"

	"github.com/goccl/goccl/ccl"
)

// Both ranks are goroutines of this process with Nodes of their own, so each transport's whole path
// is in the profile.
func BenchmarkAllReduce(b *testing.B) {
	for _, transport := range allTransports {
		for _, n := range []int{2, 1 << 10, 1 << 18, 4 << 20} {
			b.Run(fmt.Sprintf("%s/%d", transport, 4*n), func(b *testing.B) {
				comms := group(b, transport, 2, ccl.GroupOptions{})
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				b.ResetTimer()
				each(b, 2, func(rank int) error {
					x := make([]float32, n)
					for range b.N {
						if err := ccl.AllReduce(background, comms[rank], x, x, ccl.Sum); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// BenchmarkAlone measures what an operation costs besides its messages, in a group of one rank.
func BenchmarkAlone(b *testing.B) { alone(b, "") }

// BenchmarkAloneOnline is BenchmarkAlone with GOCCL_TUNE=online: what a call pays that is no trial.
func BenchmarkAloneOnline(b *testing.B) { alone(b, "online") }

func alone(b *testing.B, tune string) {
	comms := group(b, "inproc", 1, ccl.GroupOptions{Tune: tune})
	call := allReduceCall(make([]float32, 2))
	b.ReportAllocs()
	for b.Loop() {
		if err := comms[0].Do(background, call); err != nil {
			b.Fatal(err)
		}
	}
}
