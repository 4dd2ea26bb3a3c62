//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"math/bits"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
)

// requests are what one call of C posts, and which one was refused.
type requests struct {
	sends  [24]cSend
	pieces [24][2]cPiece
	bad    uintptr
}

// pair implements Pair.
type pair struct {
	context *context
	number  uint32
	inline  int
	room    int // writes

	mu        sync.Mutex
	handle    uintptr // ibv_qp, 0 once it is closed
	connected bool
	memory    *requests
	arguments arguments
}

// NewPair implements Context.
func (c *context) NewPair(o PairOptions) (Pair, error) {
	queue, ok := o.Completions.(*completions)
	shared, okShared := o.Receives.(*receives)
	const most = 1 << 30
	switch {
	case !ok || !okShared || queue.context != c || shared.context != c:
		return nil, fault.New(fault.Invalid, "rdma: a pair of %s with queues of another adapter", c.name)
	case queue.handle == 0 || shared.handle == 0:
		return nil, errClosed("queue of a pair")
	case o.Posted < 1 || o.Posted > most || o.Inline < 0 || o.Inline > most:
		return nil, fault.New(fault.Invalid, "rdma: a pair with %d writes posted, %d bytes inline", o.Posted, o.Inline)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	p := &pair{context: c}
	if err := p.make(o, queue, shared); err != nil {
		_ = p.release()
		c.end()
		return nil, err
	}
	return p, nil
}

func (p *pair) make(o PairOptions, queue *completions, shared *receives) error {
	c := p.context
	var err error
	if p.memory, err = newBlock[requests](); err != nil {
		return err
	}
	for index := range p.memory.sends {
		p.memory.sends[index].pieces = addressOf(&p.memory.pieces[index][0])
	}
	init := cPairInit{cookie: addressOf(p.memory), sends: queue.handle, receives: queue.handle, shared: shared.handle,
		posted: uint32(o.Posted), pieces: 2, inline: uint32(o.Inline), kind: kindReliable}
	handle, errno := c.createQP(c.domain, &init)
	if errno != 0 {
		return refused(errno, "a pair of %s with %d writes posted, %d bytes inline", c.name, o.Posted, o.Inline)
	}
	p.handle = handle
	memory := at[cPair](handle)
	p.number, p.room = memory.number, o.Posted
	p.inline = int(init.inline) // the library has put there what the pair allows
	if p.number>>24 != 0 {
		return misfit("ibv_qp.qp_num", uint64(p.number), "a number of 24 bits")
	}
	if p.inline < o.Inline {
		return misfit("ibv_qp_cap.max_inline_data", uint64(p.inline), "as many bytes as asked for")
	}
	return fits(
		field{"ibv_qp.context", uint64(memory.context), uint64(c.handle)},
		field{"ibv_qp.qp_context", uint64(memory.cookie), uint64(init.cookie)},
		field{"ibv_qp.pd", uint64(memory.domain), uint64(c.domain)},
		field{"ibv_qp.send_cq", uint64(memory.sends), uint64(queue.handle)},
		field{"ibv_qp.recv_cq", uint64(memory.receives), uint64(queue.handle)},
		field{"ibv_qp.srq", uint64(memory.shared), uint64(shared.handle)},
		field{"ibv_qp.qp_type", uint64(memory.kind), kindReliable},
	)
}

// release gives back what make has got.
func (p *pair) release() error {
	if p.handle != 0 {
		if errno := p.context.destroyQP(p.handle); errno != 0 {
			return refused(errno, "the end of a pair of %s", p.context.name)
		}
		p.handle = 0
	}
	freeBlock(p.memory)
	p.memory = nil
	return nil
}

// Number implements Pair.
func (p *pair) Number() uint32 { return p.number }

// Inline implements Pair.
func (p *pair) Inline() int { return p.inline }

// Connect implements Pair.
func (p *pair) Connect(c Connection) error {
	const leastMTU, mostMTU = 256, 4096
	if c.MTU < leastMTU || c.MTU > mostMTU || bits.OnesCount(uint(c.MTU)) != 1 {
		return fault.New(fault.Invalid, "rdma: an MTU of %d bytes", c.MTU)
	}
	if c.Port < 1 || c.Port > 255 || c.GID < 0 || c.GID > 255 || c.Service > 15 ||
		c.Sequence>>24 != 0 || c.Remote.Sequence>>24 != 0 || c.Remote.Pair>>24 != 0 ||
		c.Timing.Timeout > 31 || c.Timing.Retries > 7 || c.Timing.NotReady > 7 {
		return fault.New(fault.Invalid, "rdma: a pair cannot be connected so: %+v", c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle == 0 {
		return errClosed("pair")
	}
	for _, step := range []struct {
		name string
		attr cPairAttr
		mask int
	}{
		{"INIT", cPairAttr{state: stateInit, port: uint8(c.Port), access: accessRemoteWrite}, maskInit},
		{"RTR", cPairAttr{state: stateReceive, mtu: int32(bits.TrailingZeros(uint(c.MTU))) - 7, path: pathOf(c),
			remotePair: c.Remote.Pair, remoteSequence: c.Remote.Sequence, remoteReads: 1,
			notReadyTime: notReadyTime}, maskReceive},
		{"RTS", cPairAttr{state: stateSend, sequence: c.Sequence, timeout: c.Timing.Timeout,
			retries: c.Timing.Retries, notReady: c.Timing.NotReady, reads: 1}, maskSend},
	} {
		if errno := p.context.modifyQP(p.handle, &step.attr, step.mask); errno != 0 {
			return refused(errno, "pair %d of %s cannot become %s: %+v", p.number, p.context.name, step.name, c)
		}
	}
	p.connected = true
	return nil
}

// notReadyTime is how long a peer waits that has found no receive posted: 0.64 ms, in the code of
// ibv_qp_attr.min_rnr_timer.
const notReadyTime = 12

// mostHops is the TTL of packets: enough for every network.
const mostHops = 255

func pathOf(c Connection) cPath {
	path := cPath{lid: c.Remote.LID, service: c.Service, port: uint8(c.Port)}
	if c.Remote.GID != [16]byte{} {
		path.global, path.gid, path.index, path.hops, path.class = 1, c.Remote.GID, uint8(c.GID), mostHops, c.Class
	}
	return path
}

// Post implements Pair.
func (p *pair) Post(writes []Write) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle == 0 {
		return 0, errClosed("pair")
	}
	if !p.connected { // not all adapters look
		return 0, fault.New(fault.Invalid, "rdma: pair %d of %s is not connected", p.number, p.context.name)
	}
	posted := 0
	for posted < len(writes) {
		now := min(len(writes)-posted, len(p.memory.sends))
		for index := range now {
			p.prepare(index, &writes[posted+index])
			p.memory.sends[index].next = 0
			if index > 0 {
				p.memory.sends[index-1].next = addressOf(&p.memory.sends[index])
			}
		}
		p.memory.bad = 0
		first := addressOf(&p.memory.sends[0])
		code := p.arguments.call(p.context.do.post, p.handle, first, addressOf(&p.memory.bad))
		if code != 0 {
			posted += p.before(p.memory.bad, now)
			return posted, fault.Wrap(fault.System, refusal(uintptr(code), 0),
				"rdma: pair %d of %s, which was made for %d writes, takes no more after %d of %d", p.number,
				p.context.name, p.room, posted, len(writes))
		}
		posted += now
	}
	return posted, nil
}

// before returns how many of n writes precede the one that was refused.
func (p *pair) before(bad uintptr, n int) int {
	for index := range n {
		if addressOf(&p.memory.sends[index]) == bad {
			return index
		}
	}
	return 0
}

// prepare puts a write into a place of the list.
func (p *pair) prepare(index int, w *Write) {
	s := &p.memory.sends[index]
	s.cookie, s.to, s.key, s.operation, s.flags, s.count = w.Cookie, w.To, w.Key, operationWrite, 0, 0
	if w.Tell {
		s.operation, s.immediate = operationWriteTell, bits.ReverseBytes32(w.Immediate)
	}
	if w.Inline {
		s.flags |= flagInline
	}
	if w.Complete {
		s.flags |= flagComplete
	}
	for _, piece := range w.From {
		if piece.Bytes > 0 {
			p.memory.pieces[index][s.count] = cPiece{piece.At, piece.Bytes, piece.Key}
			s.count++
		}
	}
}

// Fail implements Pair.
func (p *pair) Fail() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle == 0 {
		return errClosed("pair")
	}
	if errno := p.context.modifyQP(p.handle, &cPairAttr{state: stateError}, maskState); errno != 0 {
		return refused(errno, "pair %d of %s cannot fail", p.number, p.context.name)
	}
	return nil
}

// Close implements Pair.
func (p *pair) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle == 0 {
		return errClosed("pair")
	}
	if err := p.release(); err != nil {
		return err
	}
	p.context.end()
	return nil
}
