//go:build !race

package verbstest

import (
	"bytes"
	"testing"

	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// TestPartial: who looks at memory before the completion sees parts of a write, and the last byte
// before others. (It is a race; the detector would say so.)
func TestPartial(t *testing.T) {
	n, b := two(t, Options{Seed: 1})
	pa, _ := b.connected()
	const bytesOf = 4096
	copy(b.a.memory, bytes.Repeat([]byte{1}, bytesOf))
	parts, lastFirst := 0, 0
	for round := 0; round < 2000 && (parts == 0 || lastFirst == 0); round++ {
		clear(b.b.memory[:bytesOf])
		b.a.post(pa, b.a.write(b.b, 0, bytesOf))
		for b.a.q.(*completions).empty() {
			switch c := bytes.Count(b.b.memory[:bytesOf], []byte{1}); {
			case c == 0 || c == bytesOf:
			case b.b.memory[bytesOf-1] == 1:
				lastFirst++
			default:
				parts++
			}
		}
		b.a.poll(1)
	}
	if parts == 0 || lastFirst == 0 {
		t.Errorf("nobody can see that a write is made of parts: %d, %d with the last byte", parts, lastFirst)
	}
	n.Check(t)
}

// TestUnmapped: memory that was unmapped while it was registered is a report, not a crash.
func TestUnmapped(t *testing.T) {
	n, b := two(t, Options{Seed: 1})
	pa, _ := b.connected()
	block, err := mem.Alloc(1 << 16)
	b.a.must(err)
	region := b.b.register(block.Bytes(), true)
	w := b.a.write(b.b, 0, 100)
	w.To, w.Key = addressOf(block.Bytes()), region.Remote()
	b.a.must(block.Free())
	b.a.post(pa, w)
	b.a.ended(b.a.poll(1)[0], pa, 0, verbs.Success)
	reported(t, n, "memory of a region went before its Close", "to host 1: fake_0: pair")
}

// empty reports whether there is nothing to poll.
func (q *completions) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.put == q.taken
}
