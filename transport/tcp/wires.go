package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// wire is one way to a peer: one of its addresses, and the interface of this process that leads
// there.
type wire struct {
	to   endpoint
	from endpoint // without an address, the kernel chooses
	rate uint32   // in Mbit/s, 0 if the system does not know it
	last bool     // it is likely to lead nowhere: tried when no other one leads to the peer
}

func (w wire) String() string {
	if !w.from.prefix.IsValid() {
		return w.to.prefix.Addr().String()
	}
	return fmt.Sprintf("%s %v → %v", w.from.name, w.from.prefix.Addr(), w.to.prefix.Addr())
}

// wires returns the ways to a peer: by their rates if all are known, else loopback on the same
// host, then interfaces of the same subnet, then the rest; at last those that are likely to lead
// nowhere. There may be none: then the peer has to dial.
func wires(from, to *address) (all []wire) {
	ends := usable(from, to)
	if from.host != to.host { // nor to addresses of this host that peers are not told
		ends = slices.DeleteFunc(ends, func(e endpoint) bool { return slices.Contains(from.has, e.prefix.Addr()) })
	}
	for _, e := range ends {
		found := false
		for _, f := range from.endpoints {
			if from.host != to.host && f.neighbour(e) {
				found = true
				w := wire{to: e, from: f, last: e.last || f.last}
				if f.rate > 0 && e.rate > 0 {
					w.rate = min(f.rate, e.rate)
				}
				all = append(all, w)
			}
		}
		if !found {
			all = append(all, wire{to: e, last: e.last})
		}
	}
	good := likely(all)
	if !slices.ContainsFunc(good, wire.unrated) {
		slices.SortStableFunc(good, func(a, b wire) int { return cmp.Compare(b.rate, a.rate) })
	}
	return all
}

// likely returns the wires before those that are likely to lead nowhere, or all where there are no
// others. It reorders wires so that these are behind.
func likely(all []wire) []wire {
	slices.SortStableFunc(all, func(a, b wire) int {
		switch {
		case a.last == b.last:
			return 0
		case b.last:
			return -1
		}
		return 1
	})
	if n := slices.IndexFunc(all, func(w wire) bool { return w.last }); n > 0 {
		return all[:n]
	}
	return all
}

func (w wire) unrated() bool { return w.rate == 0 }

// The probe of a wire: the time that probeBytes and an answer take. This is more than a token
// bucket lets pass at once.
const (
	probeBytes = 512 << 10
	probeTime  = 300 * time.Millisecond // for all wires, from when the first one was connected
)

// order is the order of the wires to a host, as probes have found it.
type order struct {
	found chan struct{}   // closed when perm is set, or nobody answered
	perm  []int           // indices of wires; nil if nobody answered
	took  []time.Duration // by index: what a probe takes; MaxInt64 without an answer
}

// routes returns the wires to a peer, best first. The wires to each host are probed once.
func (p *pair) routes(ctx context.Context) []wire {
	all := wires(p.f.self, p.peer)
	candidates := contenders(all)
	if len(candidates) < 2 {
		return all
	}
	key := p.peer.network()
	p.f.mu.Lock()
	o := p.f.orders[key]
	first := o == nil
	if first {
		o = &order{found: make(chan struct{})}
		p.f.orders[key] = o
	}
	p.f.mu.Unlock()
	if first {
		if o.perm, o.took = p.probe(ctx, all, candidates); o.perm == nil {
			p.f.mu.Lock()
			delete(p.f.orders, key)
			p.f.mu.Unlock()
		}
		close(o.found)
	}
	select {
	case <-o.found:
	case <-ctx.Done():
	}
	return o.sort(all)
}

// known returns the wires to a peer, in the order that a probe has found, if there was one.
func (p *pair) known() []wire {
	p.f.mu.Lock()
	o := p.f.orders[p.peer.network()]
	p.f.mu.Unlock()
	return o.sort(wires(p.f.self, p.peer))
}

// network identifies the addresses of a process without its port: those of all processes of a host
// that use the same interfaces are equal.
func (a *address) network() string {
	key := string(a.host[:])
	for _, e := range a.endpoints {
		key += fmt.Sprintf(" %v %d", e.prefix, e.device)
	}
	return key
}

// settled reports whether a probe has found an order.
func (o *order) settled() bool {
	if o == nil {
		return false
	}
	select {
	case <-o.found:
		return o.perm != nil
	default:
		return false
	}
}

// sort returns the wires in the order o, or as they are if there is none yet.
func (o *order) sort(all []wire) []wire {
	if !o.settled() {
		return all
	}
	sorted := make([]wire, 0, len(all))
	for _, at := range o.perm {
		sorted = append(sorted, all[at])
	}
	if len(sorted) < len(all) {
		return all
	}
	return sorted
}

// contenders returns the indices of the wires that are worth a probe: the first one of each pair of
// interfaces that is likely to lead to the peer. The others (another family) follow it.
func contenders(all []wire) (first []int) {
	type ends struct {
		from string
		to   byte
	}
	seen := map[ends]bool{}
	for i, w := range likely(all) {
		if e := (ends{w.from.name, w.to.device}); !seen[e] && !w.to.loopback() {
			seen[e] = true
			first = append(first, i)
		}
	}
	return first
}

// probe dials all candidates at once, and returns the order of the wires by what it finds: those
// that answered, the fastest first, and then the others; and the times by which it is one. It
// returns nil if none did.
func (p *pair) probe(ctx context.Context, all []wire, candidates []int) (perm []int, took []time.Duration) {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		at      int
		reached bool // the rest follows
		took    time.Duration
		err     error
	}
	answers := make(chan answer, 2*len(candidates))
	rated := !slices.ContainsFunc(candidates, func(i int) bool { return all[i].unrated() })
	for _, i := range candidates {
		group.Go(func() {
			took, err := p.probeOne(ctx, all[i], rated, func() { answers <- answer{at: i, reached: true} })
			answers <- answer{at: i, took: took, err: err}
		})
	}
	took = make([]time.Duration, len(all))
	texts := make([]string, len(all))
	for i := range took {
		took[i] = math.MaxInt64 // no answer
	}
	var late <-chan time.Time
	for left := len(candidates); left > 0; {
		select {
		case a := <-answers:
			switch {
			case a.reached:
				took[a.at] = probeTime // so far
				texts[a.at] = fmt.Sprintf("not %d KiB in %v", probeBytes>>10, probeTime)
				if late == nil {
					late = time.After(probeTime)
				}
			case a.err == nil:
				took[a.at] = a.took
				texts[a.at] = fmt.Sprintf("%d KiB in %v", probeBytes>>10, a.took.Round(100*time.Microsecond))
				left--
			default:
				texts[a.at] = cmp.Or(texts[a.at], a.err.Error())
				left--
			}
		case <-late:
			left = 0
		}
	}
	perm = make([]int, len(all))
	for i := range perm {
		perm[i] = i
	}
	if rated {
		for _, i := range candidates {
			if took[i] != math.MaxInt64 {
				took[i] = probeBytes * 8 / time.Duration(all[i].rate) * time.Microsecond
				texts[i] = fmt.Sprintf("%d Mbit/s", all[i].rate)
			}
		}
	}
	// Times within a factor of 1.5 count as equal.
	level := func(i int) int { return int(math.Log(float64(max(took[i], 1))) / math.Log(1.5)) }
	slices.SortStableFunc(perm, func(a, b int) int { return cmp.Compare(level(a), level(b)) })
	if took[perm[0]] == math.MaxInt64 {
		return nil, nil
	}
	var said []string
	for _, i := range perm {
		if texts[i] != "" {
			said = append(said, fmt.Sprintf("%v (%s)", all[i], texts[i]))
		}
	}
	p.f.opts.Info("tcp: the wires to %s, best first: %s", p.peer.hostname, strings.Join(said, ", "))
	return perm, took
}

// probeOne connects by one wire, and measures it unless rates are known. reached is called once the
// peer has answered.
func (p *pair) probeOne(ctx context.Context, w wire, rated bool, reached func()) (time.Duration, error) {
	nc, err := p.f.dial(ctx, w, p.peer)
	if err != nil {
		return 0, err
	}
	if _, err = p.shake(ctx, nc, helloProbe, nonce{}); err != nil {
		return 0, err
	}
	defer nc.Close()
	reached()
	bytes := probeBytes
	if rated {
		bytes = 1
	}
	defer context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })()
	begun := time.Now()
	if _, err = nc.Write(make([]byte, bytes)); err == nil {
		err = nc.CloseWrite()
	}
	if err == nil {
		_, err = io.ReadFull(nc, make([]byte, 1))
	}
	return time.Since(begun), err
}

// answerProbe is the acceptor's part of probeOne.
func (f *Fabric) answerProbe(g *guest) error {
	n, err := io.Copy(io.Discard, io.LimitReader(g.nc, probeBytes+1))
	if err == nil && n > probeBytes {
		err = errors.New("a probe is too long")
	}
	if err == nil {
		_, err = g.nc.Write([]byte{accepted})
	}
	return err
}
