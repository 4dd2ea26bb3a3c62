package tcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/unproven"
)

// scanAbove is the number of connections above which Poll asks the kernel which of them have
// events, instead of trying each.
const scanAbove = 3

// Fabric joins this process to others by TCP. It implements transport.Fabric, transport.Poller
// and transport.Door.
type Fabric struct {
	opts      Options
	secret    []byte // that of Options.SecretFile
	doorbell  *park.Doorbell
	self      *address
	blob      []byte
	identity  *identity // nil without TLS
	listeners []*net.TCPListener
	poller    *poller
	silent    *unproven.Conns // accepted, no hello yet
	waiting   *unproven.Conns // accepted, with a hello but no proof yet
	ctx       context.Context
	cancel    context.CancelFunc
	tasks     sync.WaitGroup // accepting and handshakes
	sockets   sync.WaitGroup // connections whose socket is open; grows under mu
	stopping  chan struct{}  // closed when Close begins
	done      chan struct{}  // closed when Close has finished
	table     atomic.Pointer[[]*socket]
	live      atomic.Int32                   // sockets in table; its other entries are nil
	attended  sync.Once                      // attend runs
	unpaced   sync.Once                      // Options.Info was told of the congestion control
	full      atomic.Bool                    // a socket took too little since the last Leave
	spent     [2]atomic.Int64                // what all sessions have spent
	shuffle   func([]*socket) []*socket      // tests: in which order the sockets of a connection are tried
	hellos    atomic.Uint64                  // handshakes whose order counts (outdated)
	dials     chan struct{}                  // one element for each pair that is dialled for the first time
	lack      atomic.Pointer[transport.Lack] // what accepting connections lacks; nil for nothing
	visits    atomic.Pointer[func(net.Conn)] // what Admit was given; nil for nothing

	trips func(int, *pathInfo) (shortest, smoothed time.Duration) // pathTrips, but for tests
	now   func() time.Time                                        // time.Now, but for tests

	mu         sync.Mutex
	closed     bool // no new pairs
	down       bool // no new sockets or tasks
	pairs      map[pairKey]*pair
	orders     map[string]*order  // of the wires to other hosts
	limits     map[[16]byte]uint8 // of segments to other hosts, as an index of segments
	registered chan struct{}      // closed and replaced when a pair is added
}

var (
	_ transport.Fabric = (*Fabric)(nil)
	_ transport.Poller = (*Fabric)(nil)
	_ transport.Door   = (*Fabric)(nil)
)

var errFabricClosed = fault.New(fault.Closed, "tcp: the fabric was closed")

// New returns a fabric that listens on the chosen interfaces.
func New(opts Options) (*Fabric, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	secret, err := readSecret(opts.SecretFile)
	if err != nil {
		return nil, err
	}
	if _, _, err := Congestion(opts.Congestion); err != nil {
		return nil, err
	}
	sel, _ := parseSelector(opts.Interfaces)
	all, err := hostInterfaces()
	if err != nil {
		return nil, err
	}
	nics, err := sel.choose(ofFamily(all, opts.Family))
	if err != nil {
		return nil, err
	}
	f := &Fabric{opts: opts, secret: secret, doorbell: opts.Doorbell, self: &address{},
		silent:  unproven.New(opts.MaxUnauthenticated),
		waiting: unproven.New(opts.MaxUnauthenticated), done: make(chan struct{}), stopping: make(chan struct{}),
		trips: pathTrips, now: time.Now, dials: make(chan struct{}, mostDialing),
		pairs: map[pairKey]*pair{}, orders: map[string]*order{}, limits: map[[16]byte]uint8{},
		registered: make(chan struct{})}
	f.table.Store(&[]*socket{})
	f.identify()
	if f.poller, err = newPoller(f); err != nil {
		return nil, fault.Wrap(fault.System, err,
			"tcp: cannot watch sockets; raise the limit of open files (ulimit -n)")
	}
	wanted, left := offer(nics)
	if f.listeners, f.self.endpoints, err = listen(wanted, opts.Port, opts.LastPort); err != nil {
		f.poller.close()
		return nil, err
	}
	f.tellLeft(left)
	for _, n := range all {
		for _, p := range n.prefixes {
			f.self.has = append(f.self.has, p.Addr())
		}
	}
	if opts.TLS {
		if f.identity, err = newIdentity(); err != nil {
			closeAll(f.listeners)
			f.poller.close()
			return nil, fault.Wrap(fault.System, err, "tcp: cannot make a certificate")
		}
		f.self.certificate = f.identity.hash
	}
	f.blob = f.self.encode()
	f.mix(f.self)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for _, l := range f.listeners {
		opts.Track(descriptor(l), true)
		f.tasks.Go(func() { f.accept(l) })
	}
	return f, nil
}

// Locate implements transport.Fabric.
func (f *Fabric) Locate(peer []byte) (at []netip.Addr) {
	theirs, err := parseAddress(peer)
	if err != nil {
		return nil
	}
	for _, e := range usable(f.self, theirs) {
		at = append(at, e.prefix.Addr())
	}
	return at
}

// identify fills in the identity of this process.
func (f *Fabric) identify() {
	rand.Read(f.self.id[:])
	rand.Read(f.self.secret[:])
	place, _ := probe.Place("/") // a wrong guess is harmless: a dialled process must prove its identity
	sum := sha256.Sum256([]byte(place.Loopback()))
	copy(f.self.host[:], sum[:])
	f.self.pid = uint32(os.Getpid())
	name, _ := os.Hostname()
	for i := range len(name) {
		if c := name[i]; c > ' ' && c <= '~' && len(f.self.hostname) < maxHostname {
			f.self.hostname += string(rune(c))
		}
	}
}

// Name implements transport.Fabric.
func (f *Fabric) Name() string { return "tcp" }

// Address implements transport.Fabric. It contains a secret: only members of the job may see it.
func (f *Fabric) Address() []byte { return slices.Clone(f.blob) }

// SharesMemory implements transport.Fabric.
func (f *Fabric) SharesMemory() bool { return false }

// Reaches implements transport.Fabric.
func (f *Fabric) Reaches(peer []byte) bool {
	a, err := parseAddress(peer)
	return err == nil && reaches(f.self, a)
}

func reaches(a, b *address) bool { return len(usable(a, b)) > 0 && len(usable(b, a)) > 0 }

// Connect implements transport.Fabric.
func (f *Fabric) Connect(ctx context.Context, peer []byte, s transport.Session) (transport.Link, error) {
	a, err := parseAddress(peer)
	if err == nil {
		err = checkSpec(&s)
	}
	if err != nil {
		return nil, err
	}
	if !reaches(f.self, a) {
		return nil, fault.Peer(fault.NotSupported, s.Peer,
			"tcp: no address of %s (%s) can be reached from the interfaces of this process (%s); "+
				"see GOCCL_SOCKET_IFNAME", a.who(), list(a.endpoints), list(f.self.endpoints))
	}
	if err := f.protects(a, s.Peer); err != nil {
		return nil, err
	}
	f.mix(a)
	p, err := f.join(keyOf(f.self, a, &s), a)
	if err != nil {
		return nil, err
	}
	defer f.leave(p)
	connect := p.connect
	if s.OnUse {
		connect = func(_ context.Context, s transport.Session) (*session, error) { return p.onUse(s) }
	}
	l, err := connect(ctx, s)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// join finds or makes the pair for a Connect.
func (f *Fabric) join(key pairKey, peer *address) (*pair, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errFabricClosed
	}
	p := f.pairs[key]
	if p == nil {
		p = newPair(f, key, peer)
		f.pairs[key] = p
		close(f.registered)
		f.registered = make(chan struct{})
	}
	p.users++
	return p, nil
}

// leave is called at the end of each Connect. A pair that the peer may dial stays until the fabric
// closes: a peer that heals learns by its epoch that it was given up.
func (f *Fabric) leave(p *pair) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.users--; p.users == 0 && !p.used.Load() {
		delete(f.pairs, p.key)
	}
}

// stopped reports whether Close has begun.
func (f *Fabric) stopped() bool {
	select {
	case <-f.stopping:
		return true
	default:
		return false
	}
}

// await waits until this process also wants to connect to the peer.
func (f *Fabric) await(ctx context.Context, key pairKey) *pair {
	for {
		f.mu.Lock()
		p, registered := f.pairs[key], f.registered
		f.mu.Unlock()
		if p != nil {
			return p
		}
		select {
		case <-registered:
		case <-ctx.Done():
			return nil
		}
	}
}

// newConn makes an authenticated connection the one of its pair.
func (f *Fabric) newConn(nc *stream, p *pair, g *greeting) (*conn, error) {
	fd, err := takeSocket(nc.TCPConn, &f.opts)
	if err != nil {
		return nil, err
	}
	f.keepDevice(fd, nc.LocalAddr(), p.peer)
	c := newConn(p, fd, nc)
	c.nonce = g.nonce
	if err := p.attach(c, g); err != nil {
		closeSocket(fd)
		return nil, err
	}
	f.begin(c.main)
	return c, nil
}

// begin starts to read and write a socket that was added.
func (f *Fabric) begin(k *socket) {
	f.doorbell.Ring()
	if k.secure != nil {
		k.progress() // TLS may have read something already, of which the kernel does not tell
	}
	c := k.conn
	c.flush()
	c.left.Store(c.backlog.Load())
	c.rearm()
}

// watch adds a socket to the table of those that are polled.
func (f *Fabric) watch(k *socket) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errFabricClosed
	}
	old := *f.table.Load()
	if k.slot = slices.Index(old, nil); k.slot < 0 {
		k.slot = len(old)
	}
	if err := f.poller.add(k); err != nil {
		return fault.Wrap(fault.System, err, "tcp: cannot watch the connection to %s", k.remote)
	}
	table := append(slices.Clone(old), nil)
	table[k.slot] = k
	if table[len(table)-1] == nil {
		table = table[:len(table)-1]
	}
	f.table.Store(&table)
	f.live.Add(1)
	f.sockets.Add(1)
	f.opts.Track(k.fd, true)
	f.attended.Do(func() { f.tasks.Go(f.attend) })
	return nil
}

// attend reads now and then what no thread reads: a process may compute for minutes. Otherwise its
// sockets would stay full, and after Options.silence the peer's kernel would break them, although
// this host answers (TCP_USER_TIMEOUT counts from when a socket is full). It also looks whether
// paths are shorter than they seemed.
func (f *Fabric) attend() {
	tick := time.NewTicker(f.opts.silence() / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.Poll()
			for _, k := range *f.table.Load() {
				if k != nil {
					k.unpace()
				}
			}
		case <-f.ctx.Done():
			return
		}
	}
}

// drop removes a socket from the table.
func (f *Fabric) drop(k *socket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	table := slices.Clone(*f.table.Load())
	table[k.slot] = nil
	f.table.Store(&table)
	f.live.Add(-1)
}

// Poll implements transport.Poller.
func (f *Fabric) Poll() bool {
	table := *f.table.Load()
	moved := false
	if f.live.Load() > scanAbove {
		return f.poller.scan(table)
	}
	for _, k := range table {
		if k != nil && k.progress() {
			moved = true
		}
	}
	return moved
}

// Arm implements transport.Poller.
func (f *Fabric) Arm() {
	for _, k := range *f.table.Load() {
		if k != nil {
			f.poller.arm(k)
		}
	}
}

// Leave implements transport.Poller.
func (f *Fabric) Leave() {
	if !f.full.Swap(false) {
		return
	}
	for _, k := range *f.table.Load() {
		if k != nil && k.blocked.Load() {
			f.full.Store(true)
			k.conn.left.Store(true)
			f.poller.armOut(k)
		}
	}
}

// serve handles an event of a socket in the poller's goroutine. hup reports that the peer has
// ended its direction or that the connection broke. In that case this goroutine reads the remaining
// data, in case no thread polls.
func (f *Fabric) serve(k *socket, hup bool) {
	c := k.conn
	k.watch.armed.Store(0)
	f.doorbell.Ring()
	left := c.left.Load()
	if left {
		c.flush()
	}
	if hup || c.pair.background.Load() > 0 {
		left = true
		if !k.progress() && hup && !c.down.Load() {
			time.Sleep(time.Millisecond) // another thread is reading it
		}
	}
	if left && c.backlog.Load() {
		c.left.Store(true) // perhaps nobody else writes the rest of what this goroutine has begun
	}
	c.rearm()
}

// drainTime is how long Close goes on reading after the peer's host has acknowledged everything, so
// that the peer can end its direction: data that arrives at a closed socket would make the kernel
// reset the connection.
const drainTime = 200 * time.Millisecond

// Close implements transport.Fabric. It waits, up to Options.Linger, until committed fragments have
// reached the peers' hosts.
func (f *Fabric) Close() error {
	f.mu.Lock()
	first := !f.closed
	f.closed = true
	pairs := slices.Collect(maps.Values(f.pairs))
	f.mu.Unlock()
	if !first {
		<-f.done
		return nil
	}
	close(f.stopping)
	for _, p := range pairs {
		p.finish()
	}
	f.linger(pairs)
	f.mu.Lock()
	f.down = true
	table := *f.table.Load()
	f.mu.Unlock()
	f.cancel()
	for _, l := range f.listeners {
		f.opts.Track(descriptor(l), false)
		l.Close()
	}
	f.silent.Close()
	f.waiting.Close()
	for _, k := range table {
		if k != nil {
			k.conn.fail(errFabricClosed)
		}
	}
	f.tasks.Wait()
	f.sockets.Wait()
	f.poller.close()
	close(f.done)
	return nil
}

// finish closes all sessions and then this side's direction of the connection.
func (p *pair) finish() {
	p.mu.Lock()
	sessions := slices.Collect(maps.Keys(p.sessions))
	p.mu.Unlock()
	for _, s := range sessions {
		s.Close()
	}
	p.background.Add(1)
	p.finishing.Store(true)
	if c := p.live.Load(); c != nil {
		c.check()
		c.flush()
		c.rearm()
	}
}

// linger waits for the pairs to end.
func (f *Fabric) linger(pairs []*pair) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(f.opts.Linger)
	acknowledged := make([]struct {
		conn *conn
		at   time.Time
	}, len(pairs))
	for open := true; open && time.Now().Before(deadline); {
		open = false
		for i, p := range pairs {
			c := p.live.Load()
			if c == nil {
				open = open || p.unfinished()
				continue
			}
			if !c.main.writer.finished.Load() {
				c.check() // a thread that was writing during finish may have undone it
			}
			for _, k := range c.all() {
				k.progress()
			}
			a := &acknowledged[i]
			if a.conn != c && c.acknowledged() {
				a.conn, a.at = c, time.Now()
			}
			if a.conn == c && time.Since(a.at) > drainTime {
				c.fail(errFabricClosed)
				continue
			}
			open = true // if it is down, the pair heals next, or is lost
		}
		if open {
			<-tick.C
		}
	}
}

// heals reports whether a pair that had no socket has one now, or a new one is being made.
func (p *pair) heals() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live.Load() != nil || p.healing != nil
}

// unfinished is heals, or the first socket is being made for what sessions have committed. To a
// peer that does not answer nobody has to say why a session has failed.
func (p *pair) unfinished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	heals := p.healing != nil && !(p.healing.silent() && p.failed())
	return p.live.Load() != nil || heals || p.dialing && p.waits()
}

// failed reports whether this side has left all sessions because of an error. p.mu is held.
func (p *pair) failed() bool {
	for s := range p.sessions {
		if s.why.Load() == nil {
			return false
		}
	}
	return true
}

// acknowledged reports whether the peer's host has received all that was written, the end included.
func (c *conn) acknowledged() bool {
	if !c.main.writer.finished.Load() || !c.writing.CompareAndSwap(false, true) {
		return false
	}
	n := 1
	if !c.down.Load() {
		n = unacknowledged(c.main.fd)
	}
	c.writing.Store(false)
	return n == 0
}
