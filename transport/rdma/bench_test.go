package rdma

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// BenchmarkMessage is BenchmarkMessageOnAdapter over adapters in memory.
func BenchmarkMessage(b *testing.B) {
	benchmarkMessages(b, func(b *testing.B) (x, y end) {
		return two(b, network(b, verbstest.Options{Delay: -1}), 1, heard(&lines{}))
	})
}

func benchmarkMessages(b *testing.B, join func(b *testing.B) (x, y end)) {
	for _, bytes := range []int{16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20} {
		for _, way := range []string{"copied", "in place"} {
			b.Run(fmt.Sprintf("%d/%s", bytes, way), func(b *testing.B) {
				x, y := join(b)
				benchmarkMessage(b, x, y, bytes, way == "in place")
			})
		}
	}
}

func benchmarkMessage(b *testing.B, x, y end, bytes int, inPlace bool) {
	memory, to := pinned(b, x.f.Fabric, bytes+leastSpan), make([]byte, bytes)
	ch, from := x.link.Channel(0), y.link.Channel(0)
	answered := func() bool {
		_, m := ch.Look()
		if m != nil {
			ch.Release()
		}
		return m != nil
	}
	in := ch.(transport.Gatherer)
	received := make(chan error)
	b.SetBytes(int64(bytes))
	b.ResetTimer()
	go func() {
		for range b.N {
			at := 0
			if err := y.await("nothing arrives", func() bool {
				for at < bytes {
					payload, m := from.Look()
					if m == nil {
						return false
					}
					at += copy(to[at:], payload)
					from.Release()
				}
				from.Commit(len(from.Reserve(8)), &transport.Meta{})
				return true
			}); err != nil {
				received <- err
				return
			}
		}
		received <- nil
	}()
	for range b.N {
		at := 0
		require.NoError(b, x.await("no credit", func() bool {
			for at < bytes {
				if inPlace {
					if n, ok := in.Gather(memory[at:bytes], &transport.Meta{}); ok {
						if at += n; n == 0 {
							return false
						}
						continue
					}
				}
				space := ch.Reserve(min(bytes-at, 128<<10))
				if space == nil {
					return false
				}
				n := copy(space, memory[at:bytes])
				ch.Commit(n, &transport.Meta{})
				at += n
			}
			return in.Sent()
		}))
		require.NoError(b, x.await("no answer", answered))
	}
	require.NoError(b, <-received)
}
