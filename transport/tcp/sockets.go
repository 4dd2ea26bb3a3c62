package tcp

import (
	"context"
	"math"
	"net"
	"slices"
	"strings"
	"time"
)

// MostStreams is the largest Options.Streams.
const MostStreams = 16

// A wire carries a socket of its own if its probe took at most this many times as long as that of
// the best one, or was too short to tell.
const (
	alike    = 2
	tooShort = 2 * time.Millisecond
)

// spread has further sockets join a connection that this side has dialled.
func (p *pair) spread(c *conn) {
	paths := p.paths()
	n := p.f.opts.Streams
	if n == 0 {
		n = len(paths)
	}
	if n < 2 {
		return
	}
	used := []string{c.main.local + " → " + c.main.remote}
	for i := 1; i < n; i++ {
		k := p.addSocket(c, paths[i%len(paths)])
		if k == nil {
			continue
		}
		used = append(used, k.local+" → "+k.remote)
	}
	p.f.opts.Info("tcp: %d of %d sockets to %s: %s", len(used), n, p.peer.who(), strings.Join(used, ", "))
}

// paths returns the wires that carry sockets: the best one, and with it the next ones that share no
// interface with those before. Without Options.Streams they are not much slower than the best one.
func (p *pair) paths() (paths []wire) {
	all := wires(p.f.self, p.peer)
	p.f.mu.Lock()
	o := p.f.orders[p.peer.network()]
	p.f.mu.Unlock()
	sorted := o.sort(all)
	if !o.settled() {
		return sorted[:min(len(sorted), 1)]
	}
	best := o.took[o.perm[0]]
	for i, at := range o.perm {
		w, took := sorted[i], o.took[at]
		if took == math.MaxInt64 || p.f.opts.Streams == 0 && took > max(alike*best, tooShort) {
			break
		}
		shares := func(other wire) bool { return other.from.name == w.from.name || other.to.device == w.to.device }
		if !slices.ContainsFunc(paths, shares) {
			paths = append(paths, w)
		}
	}
	return paths
}

// addSocket dials a further socket of c. It returns nil where that fails: the connection does
// without.
func (p *pair) addSocket(c *conn, w wire) *socket {
	ctx, cancel := context.WithTimeout(p.f.ctx, p.f.opts.HandshakeTimeout)
	defer cancel()
	for pause := time.Millisecond; ctx.Err() == nil && !c.down.Load(); pause *= 2 {
		nc, err := p.f.dial(ctx, w, p.peer)
		if err != nil {
			return nil
		}
		if _, err = p.shake(ctx, nc, helloJoin, c.nonce); err == nil {
			k, _ := c.join(nc)
			return k
		}
		waits(ctx, pause) // the peer may not have attached the connection yet
	}
	return nil
}

// joins returns the connection that a hello wants to join, or nil.
func (p *pair) joins(h *hello) *conn {
	c := p.live.Load()
	if c == nil || c.nonce != h.other() || h.kind() == helloJoin && len(c.all()) == MostStreams {
		return nil
	}
	return c
}

// join adds a socket to c.
func (c *conn) join(nc *stream) (*socket, error) {
	fd, err := takeSocket(nc.TCPConn, &c.f.opts)
	if err != nil {
		return nil, err
	}
	c.f.keepDevice(fd, nc.LocalAddr(), c.pair.peer)
	k := newSocket(c, fd, nc)
	if err := c.add(k); err != nil {
		closeSocket(fd)
		return nil, err
	}
	c.f.begin(k)
	return k, nil
}

// add makes k a socket of c, unless c is down or has too many.
func (c *conn) add(k *socket) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	sockets := c.all()
	if c.down.Load() || len(sockets) == MostStreams {
		return net.ErrClosed
	}
	more := append(slices.Clone(sockets), k)
	for _, k := range more {
		limitUnsent(k.fd)
	}
	c.sockets.Store(&more)
	if err := c.f.watch(k); err != nil {
		c.sockets.Store(&sockets)
		return err
	}
	return nil
}

// gauge is how fast one of several sockets is.
type gauge struct {
	info   pathInfo
	frames int
	bytes  uint64
	busy   time.Duration
	rate   float64 // bytes a nanosecond while there is something to send; 0 if unknown
}

// The rate of a socket is measured again after this number of frames and of bytes.
const (
	gaugeFrames = 8
	gaugeBytes  = 256 << 10
)

func (k *socket) measure() {
	g := &k.gauge
	if g.frames++; g.frames%gaugeFrames != 0 {
		return
	}
	bytes, busy := carried(k.fd, &g.info)
	if bytes-g.bytes < gaugeBytes || busy <= g.busy {
		return
	}
	rate := float64(bytes-g.bytes) / float64(busy-g.busy)
	if g.rate > 0 {
		rate = (g.rate + rate) / 2
	}
	g.bytes, g.busy, g.rate = bytes, busy, rate
}

// choose notes which socket is the fastest, so that there is one that takes every fragment.
func (c *conn) choose() {
	c.fastest = c.main
	for _, k := range c.others() {
		if k.gauge.rate > c.fastest.gauge.rate && !k.over.Load() {
			c.fastest = k
		}
	}
}

// suits reports whether the next fragment of n, if it is a long one, is to leave by this socket. It
// is not where the fastest one would have sent it, and all that waits before, by the time that it
// would have left here: fragments are used in their order, so a late one holds up the others.
func (k *socket) suits(n *node) bool {
	if !n.roams() {
		return true
	}
	q := &n.channel.out
	at := q.started.Load()
	waiting := q.committed.Load() - at
	if waiting == 0 || q.ring.at(at).n <= shortPayload {
		return true
	}
	k.measure()
	fastest := k.conn.fastest
	if fastest == k || k.gauge.rate == 0 || fastest.gauge.rate <= k.gauge.rate {
		return true
	}
	here := float64(unacknowledged(k.fd)+maxPayload) / k.gauge.rate
	return here <= float64(unacknowledged(fastest.fd)+int(waiting)*maxPayload)/fastest.gauge.rate
}
