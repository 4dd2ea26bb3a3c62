package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// Fabric joins processes that tcp joins, by RDMA where it works.
type Fabric struct {
	opts    Options
	choices []Choice
	used    atomic.Pointer[[]*adapter] // those that are open
	refused error                      // manager: why none can be opened
	byTCP   atomic.Bool                // fragments of some pair go by tcp
	polls   atomic.Uint32
	manager *manager
	table   atomic.Pointer[[]*channel] // by number; written under mu
	memory  memory

	mu     sync.Mutex
	pairs  map[string]*pair // by address
	next   uint32           // number of a channel
	spare  map[int][]uint32 // numbers of links that have ended, by how many channels they have
	closed bool
}

var (
	_ transport.Fabric    = (*Fabric)(nil)
	_ transport.Poller    = (*Fabric)(nil)
	_ transport.Registrar = (*Fabric)(nil)
)

// New makes a fabric. Where this machine has no port that can be used, the error is a
// fault.NotSupported. Adapters are opened when a link needs them.
func New(o Options) (*Fabric, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	choices, err := Find(o.Library, o.Wishes)
	if err != nil {
		return nil, err
	}
	f := &Fabric{opts: o, choices: choices, pairs: map[string]*pair{}, next: 1, spare: map[int][]uint32{}}
	f.table.Store(&[]*channel{})
	f.used.Store(&[]*adapter{})
	f.byTCP.Store(true)
	f.manager = newManager(f)
	return f, nil
}

// Find returns the ports of which New would use the first MostPorts that can be opened, or its
// error.
func Find(library verbs.Library, w Wishes) ([]Choice, error) {
	devices, err := library.Devices()
	if err != nil {
		return nil, err
	}
	return Select(devices, w)
}

// adapters returns those that are open.
func (f *Fabric) adapters() []*adapter { return *f.used.Load() }

// open opens the adapters at the first call, and returns those that can be used, or why there are
// none. The manager calls it.
func (f *Fabric) open() ([]*adapter, error) {
	if open := f.adapters(); len(open) > 0 || f.refused != nil {
		return open, f.refused
	}
	all, refused := f.choose()
	var lines, left []string
	for _, c := range all {
		if c.slow != "" {
			left = append(left, fmt.Sprintf("%s (%s)", c, c.slow))
		}
	}
	choices := Fast(all)
	slots := max(f.opts.Pool/longBytes/max(min(len(choices), MostPorts), 1), 1)
	for _, c := range choices {
		number := len(f.adapters())
		if number == MostPorts {
			left = append(left, strings.TrimSuffix(fmt.Sprintf("%s (%s)", c, c.Why), " ()"))
			continue
		}
		a, err := open(f, c, number, slots)
		if err != nil {
			refused = errors.Join(refused, err)
			lines = append(lines, fmt.Sprintf("rdma: %s cannot be used: %v", c, err))
			continue
		}
		f.opts.Info("rdma: %s, GID %d (%v, %v)%s", c, a.gid.Index, a.gid.Kind, a.gid.Addr(), behind(c.Why))
		f.adopt(a)
	}
	if len(f.adapters()) == 0 {
		f.refused = refused
		f.opts.Warn("rdma: no adapter can be used, and tcp is: %v", refused)
		return nil, refused
	}
	for _, line := range lines {
		f.opts.Warn("%s", line)
	}
	if len(left) > 0 {
		f.opts.Info("rdma: a process uses %d ports at most, and not %s", MostPorts, strings.Join(left, ", "))
	}
	return f.adapters(), nil
}

// choose returns the ports again, now that it is known where the process is.
func (f *Fabric) choose() ([]Choice, error) {
	if f.opts.Seat == nil {
		return f.choices, nil
	}
	if s := f.opts.Seat(); s != nil {
		f.opts.Wishes.Seat = s
		return Find(f.opts.Library, f.opts.Wishes)
	}
	return f.choices, nil
}

// behind returns a reason as the end of a line.
func behind(why string) string {
	if why == "" {
		return ""
	}
	return ", " + why
}

// Name implements transport.Fabric.
func (f *Fabric) Name() string { return "rdma" }

// Address implements transport.Fabric. What else a peer needs is told over tcp.
func (f *Fabric) Address() []byte { return f.opts.TCP.Address() }

// Reaches implements transport.Fabric.
func (f *Fabric) Reaches(peer []byte) bool { return f.opts.TCP.Reaches(peer) }

// SharesMemory implements transport.Fabric.
func (f *Fabric) SharesMemory() bool { return false }

// Connect implements transport.Fabric: it opens a link by tcp, and waits for a while until a
// connection is tried that fragments can take.
func (f *Fabric) Connect(ctx context.Context, peer []byte, s transport.Session) (transport.Link, error) {
	p, err := f.pair(peer)
	if err != nil {
		return nil, err
	}
	var made atomic.Pointer[link]
	if handle := s.Control; handle != nil {
		s.Control = func(text []byte) {
			if l := made.Load(); l == nil || !l.closing.Load() { // the tcp link is closed later
				handle(text)
			}
		}
	}
	tcp, err := f.opts.TCP.Connect(ctx, peer, s)
	if err != nil {
		return nil, err
	}
	l, err := f.add(p, tcp, s)
	if err != nil {
		tcp.Close()
		return nil, err
	}
	made.Store(l)
	f.manager.do(func() { p.enroll(l) })
	if s.OnUse {
		return l, nil
	}
	l.begin()
	timer := time.NewTimer(f.opts.Try)
	defer timer.Stop()
	select {
	case <-l.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	return l, nil
}

// pair returns what there is about a process.
func (f *Fabric) pair(peer []byte) (*pair, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fault.New(fault.Closed, "rdma: the fabric is closed")
	}
	p := f.pairs[string(peer)]
	if p == nil {
		p = newPair(f, slices.Clone(peer))
		f.pairs[string(peer)] = p
	}
	return p, nil
}

// add makes a link and gives its channels numbers.
func (f *Fabric) add(p *pair, tcp transport.Link, s transport.Session) (*link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fault.New(fault.Closed, "rdma: the fabric is closed")
	}
	base := f.next
	if spare := f.spare[s.Channels]; len(spare) > 0 {
		base = spare[len(spare)-1]
		f.spare[s.Channels] = spare[:len(spare)-1]
	} else if f.next += uint32(s.Channels); f.next > mostChannel {
		f.next = base
		return nil, fault.New(fault.System, "rdma: more than %d channels are open", mostChannel)
	}
	short := shortBytes
	if p.count++; p.count > roomyLinks {
		short = leastBytes
	}
	l := newLink(p, tcp, s, base, short)
	table := slices.Grow(slices.Clone(*f.table.Load()), s.Channels)
	for len(table) < int(base)+s.Channels {
		table = append(table, nil)
	}
	for i := range l.channels {
		table[int(base)+i] = &l.channels[i]
	}
	f.table.Store(&table)
	return l, nil
}

// hide has the numbers of a link name nothing.
func (f *Fabric) hide(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	table := slices.Clone(*f.table.Load())
	clear(table[l.base : int(l.base)+len(l.channels)])
	f.table.Store(&table)
}

// remove takes the numbers of a link back.
func (f *Fabric) remove(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spare[len(l.channels)] = append(f.spare[len(l.channels)], l.base)
	l.pair.count--
}

// channel returns a channel by its number, or nil.
func (f *Fabric) channel(number uint32) *channel {
	if table := *f.table.Load(); int(number) < len(table) {
		return table[number]
	}
	return nil
}

func (f *Fabric) all() []*pair { return f.appendPairs(nil) }

func (f *Fabric) appendPairs(to []*pair) []*pair {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pairs {
		to = append(to, p)
	}
	return to
}

// Poll implements transport.Poller.
func (f *Fabric) Poll() bool {
	moved := f.pollAdapters(false)
	if f.byTCP.Load() || f.polls.Add(1)%fewPolls == 0 {
		moved = f.opts.TCP.Poll() || moved
	}
	return moved
}

// fewPolls is how many polls of the adapters there are for one of tcp, while fragments go by the
// adapters: tcp costs a system call, and has only goodbyes. Who sleeps is woken by either.
const fewPolls = 32

// drain takes everything that has completed by now, and reports whether that was anything.
func (f *Fabric) drain() bool { return f.pollAdapters(true) }

func (f *Fabric) pollAdapters(wait bool) bool {
	moved := false
	for _, a := range f.adapters() {
		moved = a.poll(wait) || moved
	}
	if moved {
		f.opts.Doorbell.Ring()
	}
	return moved
}

// Arm implements transport.Poller.
func (f *Fabric) Arm() {
	f.arm()
	f.opts.TCP.Arm()
}

func (f *Fabric) arm() {
	for _, a := range f.adapters() {
		a.arm()
	}
}

// Leave implements transport.Poller. What was posted leaves by itself.
func (f *Fabric) Leave() { f.opts.TCP.Leave() }

// Locate implements transport.Fabric.
func (f *Fabric) Locate(peer []byte) []netip.Addr { return f.opts.TCP.Locate(peer) }

// Close implements transport.Fabric. It delivers what was published, as far as peers take it within
// Options.Linger.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.mu.Unlock()
	for deadline := time.Now().Add(f.opts.Linger); ; time.Sleep(soon) {
		busy := false
		f.manager.call(func() {
			for _, p := range f.all() {
				busy = !p.close() || busy
			}
		})
		if !busy || time.Now().After(deadline) {
			break
		}
	}
	f.manager.call(func() {
		for _, p := range f.all() {
			p.end(errClosed)
		}
	})
	f.manager.stop()
	f.forget()
	for _, a := range f.adapters() {
		a.close()
	}
	return nil
}
