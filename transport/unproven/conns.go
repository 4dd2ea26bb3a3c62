// Package unproven keeps the connections that a process has accepted and whose other ends have not
// proven yet that they may connect.
//
// They are few, and it is the oldest that goes when there is one too many. A peer proves itself as
// soon as it is heard, so it has left before it is the oldest, however many others connect and stay
// silent. Were the newest turned away, those would keep every peer out.
package unproven

import (
	"io"
	"slices"
	"sync"
)

// Conns are such connections. Its methods may be called at the same time.
type Conns struct {
	most int

	mu     sync.Mutex
	closed bool
	conns  []io.Closer // the oldest first
}

// New keeps that many connections at most, 1 or more.
func New(most int) *Conns { return &Conns{most: most} }

// Add keeps a connection until Remove, and closes the oldest if there are too many. After Close it
// closes conn.
func (c *Conns) Add(conn io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return
	}
	if len(c.conns) == c.most {
		c.conns[0].Close()
		c.conns = slices.Delete(c.conns, 0, 1)
	}
	c.conns = append(c.conns, conn)
}

// Remove hands a connection back. It reports false if that was closed here meanwhile.
func (c *Conns) Remove(conn io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.conns, conn)
	if i < 0 {
		return false
	}
	c.conns = slices.Delete(c.conns, i, i+1)
	return true
}

// Close closes all that are left, and those that come later.
func (c *Conns) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}
