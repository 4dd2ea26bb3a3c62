package p2p

import (
	"bytes"
	"math/rand/v2"
	"sync"

	"github.com/goccl/goccl/transport"
)

// pipe is one direction of a fake channel: a bounded queue in memory that at random lends less than
// requested, or nothing.
type pipe struct {
	mu       sync.Mutex
	ring     []fragment
	first    int
	count    int
	bytes    int
	capacity int
	lent     []byte
	rng      *rand.Rand // nil: lends all it has

	onPublish, onConsume func(transport.Meta)
}

type fragment struct {
	memory []byte
	n      int
	meta   transport.Meta
}

// stale overwrites released memory, so that a later read of it is noticed.
var stale = bytes.Repeat([]byte{0xDD}, transport.MaxFragment)

const staleWord = 0xDDDDDDDDDDDDDDDD

func newPipe(fragments, capacity int) *pipe {
	return &pipe{ring: make([]fragment, fragments), capacity: capacity}
}

func (p *pipe) Reserve(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent = nil
	if p.count == len(p.ring) || p.rng != nil && p.rng.IntN(4) == 0 {
		return nil
	}
	lend := n
	if p.rng != nil && n > 64 && p.rng.IntN(2) == 0 {
		lend = 64 * (1 + p.rng.IntN((n-1)/64))
	}
	if free := p.capacity - p.bytes; lend > free {
		lend = free &^ 63
	}
	if lend == 0 && n > 0 {
		return nil
	}
	f := &p.ring[(p.first+p.count)%len(p.ring)]
	if cap(f.memory) < lend || f.memory == nil {
		f.memory = make([]byte, lend, max(lend, 64))
	}
	p.lent = f.memory[:lend:lend]
	return p.lent
}

func (p *pipe) Publish(n int, m *transport.Meta) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lent == nil || n > len(p.lent) {
		panic("more was published than was lent")
	}
	p.lent = nil
	f := &p.ring[(p.first+p.count)%len(p.ring)]
	f.n, f.meta = n, *m
	p.count++
	p.bytes += n
	if p.onPublish != nil {
		p.onPublish(*m)
	}
}

func (p *pipe) Look() ([]byte, *transport.Meta) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 {
		return nil, nil
	}
	f := &p.ring[p.first]
	return f.memory[:f.n:f.n], &f.meta
}

func (p *pipe) Consume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &p.ring[p.first]
	copy(f.memory[:f.n], stale)
	meta := f.meta
	f.meta = transport.Meta{staleWord, staleWord, staleWord}
	p.first = (p.first + 1) % len(p.ring)
	p.count--
	p.bytes -= f.n
	if p.onConsume != nil {
		p.onConsume(meta)
	}
}

// end is one side of a fake channel.
type end struct {
	out, in *pipe
	series  int // fragments published and consumed since the last Flush
}

func (e *end) Reserve(n int) []byte             { return e.out.Reserve(n) }
func (e *end) Publish(n int, m *transport.Meta) { e.series++; e.out.Publish(n, m) }
func (e *end) Look() ([]byte, *transport.Meta)  { return e.in.Look() }
func (e *end) Consume()                         { e.series++; e.in.Consume() }
func (e *end) Flush()                           { e.series = 0 }

func (e *end) Commit(n int, m *transport.Meta) {
	e.Publish(n, m)
	e.Flush()
}

func (e *end) Peek() ([]byte, transport.Meta, bool) {
	payload, m := e.Look()
	if m == nil {
		return nil, transport.Meta{}, false
	}
	return payload, *m, true
}

func (e *end) Release() {
	e.Consume()
	e.Flush()
}

// network joins every rank to every other. pipes[s][d] carries from s to d.
type network struct {
	pipes [][]*pipe
	chans [][]transport.Channel
}

func newNetwork(ranks, fragments, capacity int, rng *rand.Rand) *network {
	n := &network{}
	for s := range ranks {
		n.pipes = append(n.pipes, make([]*pipe, ranks))
		n.chans = append(n.chans, make([]transport.Channel, ranks))
		for d := range ranks {
			if s != d {
				n.pipes[s][d] = newPipe(fragments, capacity)
				n.pipes[s][d].rng = rng
			}
		}
	}
	for s := range ranks {
		for d := range ranks {
			if s != d {
				n.chans[s][d] = &end{out: n.pipes[s][d], in: n.pipes[d][s]}
			}
		}
	}
	return n
}

// calm ends the random behaviour of the pipes.
func (n *network) calm() {
	for _, row := range n.pipes {
		for _, p := range row {
			if p != nil {
				p.rng = nil
			}
		}
	}
}
