package tcp

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// relay sits between the processes that connect to it and one process.
type relay struct {
	listener net.Listener
	to       string
	// The last one of this number of bytes to the process, and from it, is changed; 0 for none.
	flipTo, flipFrom atomic.Int64
	swallow          atomic.Int64           // how many of the next connections lead nowhere
	sought           atomic.Pointer[[]byte] // bytes to look for
	found            atomic.Bool

	mu     sync.Mutex
	held   chan struct{} // not nil: nothing passes until it is closed
	conns  map[*net.TCPConn]bool
	made   int  // connections so far
	closed bool // no more
}

// newRelay returns a relay to a process, and its address as its peers are to see it.
func newRelay(t testing.TB, to *Fabric) (*relay, []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: l, to: to.self.endpoints[0].addrPort().String(), conns: map[*net.TCPConn]bool{}}
	var pumps sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		r.closed = true // a connection may just be accepted
		r.mu.Unlock()
		r.hold(0)
		r.reset()
		pumps.Wait()
	})
	pumps.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", r.to)
			if err != nil {
				in.(*net.TCPConn).SetLinger(0)
				in.Close()
				continue
			}
			a, b := in.(*net.TCPConn), out.(*net.TCPConn)
			r.mu.Lock()
			if r.closed {
				r.mu.Unlock()
				a.Close()
				b.Close()
				return
			}
			r.conns[a], r.conns[b] = true, true
			r.made++
			r.mu.Unlock()
			if r.swallow.Add(-1) >= 0 {
				continue
			}
			pumps.Go(func() { r.pump(a, b, &r.flipTo) })
			pumps.Go(func() { r.pump(b, a, &r.flipFrom) })
		}
	})
	address := *to.self
	address.endpoints = []endpoint{{prefix: to.self.endpoints[0].prefix, port: uint16(l.Addr().(*net.TCPAddr).Port)}}
	return r, address.encode()
}

// pump passes on what from sends, and its end.
func (r *relay) pump(from, to *net.TCPConn, flip *atomic.Int64) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		held := r.held
		r.mu.Unlock()
		if held != nil {
			<-held
		}
		if text := r.sought.Load(); text != nil && bytes.Contains(buf[:n], *text) {
			r.found.Store(true)
		}
		if n > 0 {
			if left := flip.Load(); left > 0 {
				if left <= int64(n) {
					buf[left-1] ^= 0x10
					left = int64(n)
				}
				flip.Add(-left)
			}
			if _, werr := to.Write(buf[:n]); err == nil {
				err = werr
			}
		}
		if err != nil {
			to.CloseWrite()
			r.mu.Lock()
			if !r.conns[from] {
				delete(r.conns, to)
			}
			r.mu.Unlock()
			return
		}
	}
}

// watch looks for a text among the bytes that pass.
func (r *relay) watch(text string) (seen func() bool) {
	sought := []byte(text)
	r.sought.Store(&sought)
	return r.found.Load
}

// reset breaks all connections in both directions.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.SetLinger(0)
		c.Close()
	}
	clear(r.conns)
}

// resetOne breaks one connection, if there is one.
func (r *relay) resetOne() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.SetLinger(0)
		c.Close()
		return
	}
}

// hold lets nothing pass for d.
func (r *relay) hold(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
	if d > 0 {
		held := make(chan struct{})
		r.held = held
		time.AfterFunc(d, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.held == held {
				close(held)
				r.held = nil
			}
		})
	}
}

// count returns how many connections there have been.
func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}
