package tcp

import (
	"fmt"
	"testing"

	"github.com/goccl/goccl/transport"
)

// BenchmarkPingPong sends a message there and back within one thread.
func BenchmarkPingPong(b *testing.B) {
	x, y, _, _ := ordered(b, nil)
	lx, ly := join(b, x, y, 1, 1)
	for _, n := range []int{8, 4096, 65536, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(2 * n))
			for b.Loop() {
				move(lx.Channel(0), ly.Channel(0), n, x, y)
				move(ly.Channel(0), lx.Channel(0), n, x, y)
			}
		})
	}
}

var meta transport.Meta

func move(from, to transport.Channel, n int, x, y *Fabric) {
	for sent, got := 0, 0; got < n; {
		if sent < n {
			if space := from.Reserve(n - sent); space != nil {
				sent += len(space)
				from.Commit(len(space), &meta)
			}
		}
		if p, _, ok := to.Peek(); ok {
			got += len(p)
			to.Release()
			continue
		}
		x.Poll()
		y.Poll()
	}
}
