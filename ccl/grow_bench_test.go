package ccl_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

// BenchmarkGrow: four ranks grow while nobody comes, and by one that waits already.
func BenchmarkGrow(b *testing.B) {
	const ranks = 4
	for _, transport := range growing {
		opts := ccl.GroupOptions{Transport: transport}
		b.Run(transport+"/nobody", func(b *testing.B) {
			comms := join(b, nodes(b, ranks, ccl.NodeOptions{}), opts, "four")
			for b.Loop() {
				each(b, ranks, func(rank int) error {
					next, err := comms[rank].Grow(background, 1, 0)
					if err == nil && next != comms[rank] {
						err = fmt.Errorf("%d ranks", next.Size())
					}
					return err
				})
			}
		})
		b.Run(transport+"/one", func(b *testing.B) {
			ctx, cancel := context.WithTimeout(background, deadline)
			defer cancel()
			for b.Loop() {
				b.StopTimer()
				comms := join(b, nodes(b, ranks, ccl.NodeOptions{}), opts, "four")
				address, err := comms[0].Address()
				require.NoError(b, err)
				node := nodes(b, 1, ccl.NodeOptions{})[0]
				came := make(chan *ccl.Communicator, 1)
				go func() {
					c, _ := node.Join(ctx, ccl.Config{Timeout: deadline, Options: opts}, address)
					came <- c
				}()
				time.Sleep(20 * time.Millisecond) // it waits at the door
				b.StartTimer()
				next := make([]*ccl.Communicator, ranks)
				each(b, ranks, func(rank int) (err error) {
					next[rank], err = comms[rank].Grow(ctx, 1, deadline)
					return err
				})
				b.StopTimer()
				for _, c := range append(next, <-came) {
					c.Close()
				}
				b.StartTimer()
			}
		})
	}
}
