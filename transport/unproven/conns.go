// Package unproven keeps the connections that a process has accepted and whose other ends have not
// yet proven that they may connect.
//
// Their number is small, and one connection too many closes the oldest. A peer proves itself as
// soon as it is read, so its connection has left the set before it becomes the oldest, however many
// others connect and stay silent. If the newest connection were closed instead, silent ones would
// keep every peer out.
package unproven

import (
	"io"
	"slices"
	"sync"
)

// Conns is a set of such connections. Its methods may be called concurrently.
type Conns struct {
	most int

	mu     sync.Mutex
	closed bool
	conns  []io.Closer // the oldest first
}

// New returns a set of at most the given number of connections, 1 or more.
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

// Remove hands a connection back. It reports false if the set has closed the connection meanwhile.
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

// Close closes the connections that are left, and those added later.
func (c *Conns) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}
