package rdma

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// BenchmarkPingPongOnAdapter sends a fragment there and back, between two processes in one.
func BenchmarkPingPongOnAdapter(b *testing.B) {
	library := onAdapter(b)
	for _, bytes := range []int{8, 4096, 32 << 10} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			var x, y end
			x.f, x.doorbell = process(b, library, nil)
			y.f, y.doorbell = process(b, library, nil)
			x.link, y.link = joined(b, x.f, y.f, 1)
			require.True(b, x.up(y) && y.up(x))
			errs := make(chan error)
			pass := func(e end, n int, first bool) error {
				ch := e.link.Channel(0)
				for range n {
					for turn := range 2 {
						if (turn == 0) == first {
							var space []byte
							for space == nil {
								if space = ch.Reserve(bytes); space == nil {
									e.f.Poll()
								}
							}
							ch.Commit(len(space), &transport.Meta{})
							continue
						}
						if err := e.await("nothing arrives", func() bool {
							_, m := ch.Look()
							if m == nil {
								return false
							}
							ch.Release()
							return true
						}); err != nil {
							return err
						}
					}
				}
				return nil
			}
			b.ResetTimer()
			go func() { errs <- pass(y, b.N, false) }()
			require.NoError(b, pass(x, b.N, true))
			require.NoError(b, <-errs)
		})
	}
}

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
