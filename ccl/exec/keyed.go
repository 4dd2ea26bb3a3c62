package exec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/blame"
	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/transport"
)

// A keyed call is a collective that the ranks match by a key, and not by the order in which they
// call. It is for calls that have no order, such as those in callbacks: threads run them, and which
// one comes first differs between ranks.
//
// Each keyed operation goes on by itself. It has a frame of its own, is in no queue, and waits for
// nothing but the same call on the other ranks; other operations do not wait for it either. So a
// rank may block in any number of keyed calls, in any order, while another thread of it blocks in
// the calls that have an order.
//
// It runs a plan of the catalogue that is made of messages (Options.Keyed). They are messages of
// the tag-matching engine, and their tags are made of the key, so that nothing depends on when they
// come. A step that waits for another one waits for the whole step.
//
// Beside these messages each rank sends its right neighbour a signature, the key and what it has
// called, and compares that of its left neighbour with its own. If all neighbours agree, all ranks
// do. Tags hold a part of the key only: if two keys have the same part, a signature shows it. So an
// operation that ends without error had the same call on all ranks.

// Key names a keyed call.
type Key struct {
	// ID is the same on all ranks, and of no other keyed call that has not ended. Its lower bits
	// should be spread as those of a hash. It is not 0.
	ID uint64
	// Within is the number of the operation in whose callback the call is made, for errors; 0 for
	// none.
	Within uint64
}

// Tags of keyed messages: the highest bit, a part of the key, and the part of the operation, a
// channel or the signature. Callers' tags have 32 bits.
const (
	keyedTag      = 1 << (p2p.TagBits - 1)
	partBits      = 3
	signaturePart = 1<<partBits - 1
)

func (k Key) tag(part int) uint64 { return keyedTag | k.ID<<partBits&(keyedTag-1) | uint64(part) }

// keyed is what an Op has if its call is keyed.
type keyed struct {
	key   Key
	call  Call // of the program; In and Out are those of the Op, except for a barrier
	frame frame
	prog  compiled

	own, left   [4]uint64 // signatures, of this rank and of its left neighbour
	send, recv  keyedMessage
	bell, bells []byte // what a barrier gathers

	messages *messages
	flying   int   // messages in the engine
	slot     int   // in keyedOps.all
	ready    bool  // it is in keyedOps.scheduled
	failed   error // of its memory, or of a message
}

// keyedMessage is a message of a keyed operation. The request comes first: see keyedOf.
type keyedMessage struct {
	req    p2p.Request
	of     *keyed
	landed bool
	err    error
}

// keyedOps is the keyed operations of a Comm. Only the driver uses it.
type keyedOps struct {
	planner   Planner // nil for none
	all       []*Op   // have begun and not ended
	scheduled []*Op   // those of them of which a message has ended, or that have just begun
	dead      *Op     // has failed because of a death
}

func (s *keyedOps) add(op *Op) {
	op.keyed.slot = len(s.all)
	s.all = append(s.all, op)
}

func (s *keyedOps) remove(op *Op) {
	last := len(s.all) - 1
	s.all[last].keyed.slot = op.keyed.slot
	s.all[op.keyed.slot] = s.all[last]
	s.all[last] = nil
	s.all = s.all[:last]
}

// schedule has the driver move on an operation.
func (s *keyedOps) schedule(op *Op) {
	if !op.keyed.ready {
		op.keyed.ready = true
		s.scheduled = append(s.scheduled, op)
	}
}

// clearScheduled forgets which operations were scheduled.
func (s *keyedOps) clearScheduled() {
	clear(s.scheduled)
	s.scheduled = s.scheduled[:0]
}

// PostKeyed starts a keyed call. An invalid call fails immediately.
func (c *Comm) PostKeyed(call *Call, key Key) (*Op, error) {
	if err := c.allowed(call); err != nil {
		return nil, err
	}
	if !call.Coll.Valid() || key.ID == 0 {
		return nil, fault.New(fault.Invalid, "%v with key %x: only collectives have keys, which are not 0",
			call.Coll, key.ID).In(c.label(), "")
	}
	op := ops.Get().(*Op)
	op.set(c, call, 0, key.Within)
	op.keyed = &keyed{key: key, messages: &c.messages}
	c.launch(op)
	return op, nil
}

// beginKeyed begins an operation that was posted. The caller holds the lock.
func (c *Comm) beginKeyed(op *Op) {
	c.keyed.add(op)
	c.deadlines.add(op)
	err := c.prepareKeyed(op)
	if err != nil && !isSystem(err) { // every rank finds this reason in its own call
		c.endKeyed(op, err)
		return
	}
	op.keyed.failed = err // it ends the Comm, which must not happen here
	c.keyed.schedule(op)
}

func (c *Comm) prepareKeyed(op *Op) error {
	k := op.keyed
	k.call = op.call
	if c.keyed.planner == nil {
		return fault.New(fault.NotSupported, "this group has no plans for keyed calls")
	}
	if op.call.Coll == dtype.Barrier {
		k.gatherBells(c.rank, c.size)
	}
	coll, root := k.call.Coll, k.call.Root
	low, err := c.run.programs.lowered(c.keyed.planner, coll, root, k.call.Bytes())
	if err != nil {
		return err
	}
	if low.Slots || low.Counts || low.Signallers != nil {
		return fault.New(fault.NotSupported, "plan %s has more than messages, so it is not for keyed calls", low.Name)
	}
	f := &k.frame
	if coll == op.call.Coll {
		if err := f.separate(op, low, c.rank); err != nil {
			return err
		}
	}
	if err := c.run.programs.compile(&k.prog, low, &k.call, &c.run.exchange.Lengths, 0); err != nil {
		return err
	}
	f.prog, f.op, f.keyed = &k.prog, op, k
	f.lanes = make([]laneState, max(1, len(k.prog.Lanes)))
	if k.prog.Tmp > 0 {
		if err := f.allocate(&k.prog); err != nil {
			return err
		}
	}
	if c.size > 1 {
		k.sign(op, c.rank, c.size)
	}
	return nil
}

// gatherBells makes the call of a barrier: every rank gets a byte of every other one.
func (k *keyed) gatherBells(rank, ranks int) {
	k.bell, k.bells = make([]byte, 1), make([]byte, ranks)
	k.call = Call{Coll: dtype.AllGather, Type: dtype.U8, In: []Block{{Ptr: address(&k.bell[0]), Count: 1}}}
	for i := range ranks {
		k.call.Out = append(k.call.Out, Block{Ptr: address(&k.bells[i]), Count: 1})
	}
}

// sign exchanges signatures with the neighbours.
func (k *keyed) sign(op *Op, rank, size int) {
	print := Print(&op.call, 0)
	k.own = [4]uint64{k.key.ID, print[0], print[1], print[2]}
	k.send.req = p2p.Request{Peer: (rank + 1) % size, Send: true, Data: address(&k.own)}
	k.recv.req = p2p.Request{Peer: (rank + size - 1) % size, Data: address(&k.left)}
	for _, m := range []*keyedMessage{&k.recv, &k.send} {
		m.req.Tag, m.req.Bytes = k.key.tag(signaturePart), len(k.own)*8
		k.post(m)
	}
}

func (k *keyed) post(m *keyedMessage) {
	m.of = k
	k.flying++
	k.messages.addWith(m.req.Peer, 1)
	k.messages.engine.Post(&m.req)
}

// keyedDone is messageDone for a message of a keyed operation.
func (c *Comm) keyedDone(req *p2p.Request, err error) {
	m := keyedOf(req)
	m.landed, m.err = true, err
	m.of.flying--
	c.messages.addWith(req.Peer, -1)
	c.keyed.schedule(m.of.frame.op)
}

// advanceKeyed moves on the keyed operations that are scheduled; there are some. The caller
// holds the lock.
func (c *Comm) advanceKeyed() {
	for i := 0; i < len(c.keyed.scheduled); i++ { // more may be scheduled in the loop
		op := c.keyed.scheduled[i]
		k := op.keyed
		k.ready = false
		done, err := false, k.failed
		if err == nil {
			var s status
			if s, err = c.run.runLanes(&k.frame, &k.call); err == nil {
				done, err = s == finished, k.failed
			}
		}
		if err == nil && k.recv.landed {
			err = k.compare()
		}
		switch {
		case err != nil && isDeath(err):
			k.failed, c.keyed.dead = err, op // it ends when it is settled who has died
		case err != nil:
			c.fail(op, err)
			return
		case done && k.flying == 0 && !k.ready: // otherwise it comes again
			c.endKeyed(op, nil)
		}
	}
	c.keyed.clearScheduled()
}

// compare checks the signature of the left neighbour.
func (k *keyed) compare() error {
	if err := k.recv.err; err != nil {
		return err
	}
	if k.send.landed && k.send.err != nil {
		return k.send.err
	}
	if k.left == k.own {
		return nil
	}
	peer := k.recv.req.Peer
	if k.left[0] != k.own[0] {
		return fault.Peer(fault.Mismatch, peer,
			"keys %x and %x cannot be told apart, so calls that belong to different callbacks have met",
			k.own[0], k.left[0])
	}
	mine, _ := fingerprint.Decode(transport.Meta(k.own[1:]))
	other, _ := fingerprint.Decode(transport.Meta(k.left[1:]))
	return fault.Peer(fault.Mismatch, peer,
		"this rank called %s, rank %d called %s; all ranks of a group must make the same calls in the same callback",
		unnumbered(mine), peer, unnumbered(other))
}

// unnumbered is describe for a call without a number.
func unnumbered(f fingerprint.Fields) string {
	f.Phase = fingerprint.PhaseOf(0)
	return strings.Replace(f.Describe(fingerprint.NoLength), " seq 0", "", 1)
}

// endKeyed ends a keyed operation, which has no messages in the engine.
func (c *Comm) endKeyed(op *Op, err error) {
	k := op.keyed
	c.keyed.remove(op)
	c.deadlines.remove(op, err == nil)
	k.frame.free()
	k.frame.finish()
	c.end(op, err)
}

// message sends or receives the message of an instruction, chunk by chunk, as send and receive do
// for other operations. It reports whether all of it has gone, or come; an error is left in k.
func (k *keyed) message(b *program.Instruction, st *laneState) (done bool) {
	chunks := b.From
	if b.Op == program.OpRecv {
		chunks = b.To
	}
	for {
		if m := st.message; m != nil {
			if !m.landed {
				return false
			}
			if m.err != nil {
				k.failed = m.err
				return false
			}
			k.received(b, st.chunk, m)
			st.message = nil
			st.chunk++
			k.frame.moves++
		}
		if st.chunk == len(chunks) {
			return true
		}
		st.message = k.place(b, &chunks[st.chunk])
		k.post(st.message)
	}
}

// place returns the message of a chunk: to whom it goes, or from whom it comes, and where it is.
// What is sent multiplied, or received to be reduced, has memory of its own.
func (k *keyed) place(b *program.Instruction, chunk *program.Chunk) *keyedMessage {
	m, s, bytes := new(keyedMessage), b.Step, chunk.Bytes
	m.req = p2p.Request{Peer: b.Peer, Tag: k.key.tag(s.Channel), Send: b.Op == program.OpSend, Bytes: bytes}
	if bytes == 0 {
		return m
	}
	at := k.frame.in(&chunk.Operand, &k.call)
	if m.req.Data = at; m.req.Send && b.Plain || !m.req.Send && !s.Kind.Traits().Reduces {
		return m
	}
	m.req.Data = addressOf(make([]byte, bytes))
	if p := &k.prog; m.req.Send {
		p.scale(m.req.Data, at, bytes/p.Elem, p.Pre)
	}
	return m
}

// received does the rest of a receive whose data has come.
func (k *keyed) received(b *program.Instruction, chunk int, m *keyedMessage) {
	f, s := &k.frame, b.Step
	if s.Kind.Traits().Reduces && m.req.Bytes > 0 {
		to, local := f.in(&b.To[chunk].Operand, &k.call), f.in(&b.From[chunk].Operand, &k.call)
		k.prog.combine(s, to, local, m.req.Data, m.req.Bytes)
	}
}

// awaited returns the ranks that a keyed operation waits for.
func (k *keyed) awaited() (ranks []int) {
	add := func(m *keyedMessage) {
		if m != nil && m.of != nil && !m.landed && !slices.Contains(ranks, m.req.Peer) && len(ranks) < blame.MostWaits {
			ranks = append(ranks, m.req.Peer)
		}
	}
	for lane := range k.frame.lanes {
		add(k.frame.lanes[lane].message)
	}
	add(&k.recv)
	return ranks
}

// where says in which callback the call was made.
func (k *keyed) where() string {
	if k.key.Within == 0 {
		return fmt.Sprintf(", key %x", k.key.ID)
	}
	return fmt.Sprintf(", in a callback of seq %d", k.key.Within)
}
