package exec_test

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/algo/algotest"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport/faulty"
)

var (
	faultySeed  = flag.Uint64("faulty.seed", 0, "run only this seed of TestDisturbed and TestCutOff")
	faultySeeds = flag.Int("faulty.seeds", 1,
		"fresh seeds of TestDisturbed and TestCutOff, besides those that they always run")
)

// seedsOf returns the fixed seeds and the fresh seeds of a run, or only the seed given by
// -faulty.seed.
func seedsOf(fixed int) []uint64 {
	if *faultySeed != 0 {
		return []uint64{*faultySeed}
	}
	var all []uint64
	for i := range fixed {
		all = append(all, uint64(i+1))
	}
	for range *faultySeeds {
		var b [8]byte
		crand.Read(b[:])
		all = append(all, binary.LittleEndian.Uint64(b[:])>>16|1<<40)
	}
	return all
}

// randomOf returns random numbers for one purpose, what, of a seed. Different purposes and
// different ranks have independent numbers.
func randomOf(seed uint64, what, rank int) *rand.Rand {
	var key [32]byte
	for i, x := range []uint64{seed, uint64(what), uint64(rank)} {
		binary.LittleEndian.PutUint64(key[8*i:], x)
	}
	return rand.New(rand.NewChaCha8(key))
}

const (
	drawnCalls = iota
	drawnInput
	drawnFaults
	drawnWays // of making calls and of waiting for them
	drawnPlans
	drawnMakeUp
)

// kinds lists the kinds of plans, by the steps that transfer the bytes.
var kinds = []plan.Need{plan.Messages, plan.Puts, plan.Gets}

// mixture is a planner that takes any algorithm of the catalogue for each size of call: it draws
// first a kind of plan, then an algorithm of that kind.
type mixture struct {
	all    []algotest.Subject
	seed   uint64
	byKind map[dtype.Collective][][]int

	mu   sync.Mutex
	made map[plan.Need]int // plans made, by kind
}

func newMixture(ranks int, seed uint64, shared bool) *mixture {
	m := &mixture{seed: seed, byKind: map[dtype.Collective][][]int{}, made: map[plan.Need]int{}}
	m.all, _ = algotest.Subjects(ranks)
	own := func(coll dtype.Collective, of func(plan.Spec) *plan.Plan, gets bool) {
		made := func(spec plan.Spec) (*plan.Plan, error) { return of(spec), nil }
		m.all = append(m.all, algotest.Subject{Algorithm: algo.Algorithm{Coll: coll, Make: made}, Gets: gets})
	}
	own(dtype.AllReduce, packets, false)
	own(dtype.AllReduce, twoShot, false)
	own(dtype.AllGather, relay, true)
	for _, coll := range dtype.Collectives() {
		for _, kind := range kinds {
			var of []int
			for i, s := range m.all {
				if s.Coll == coll && (shared || !s.Gets) && kindOf(s, ranks) == kind {
					of = append(of, i)
				}
			}
			if of != nil {
				m.byKind[coll] = append(m.byKind[coll], of)
			}
		}
	}
	return m
}

func kindOf(s algotest.Subject, ranks int) plan.Need {
	p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Shape: s.Shape})
	switch {
	case err != nil:
		panic(err)
	case s.Gets:
		return plan.Gets
	case p.Needs&plan.Puts != 0:
		return plan.Puts
	}
	return plan.Messages
}

// Choose depends on nothing but the call, since all ranks call it at any time.
func (m *mixture) Choose(coll dtype.Collective, bytes int64) int {
	random := randomOf(m.seed+uint64(bytes), drawnPlans, int(coll))
	of := m.byKind[coll]
	some := of[random.IntN(len(of))]
	return some[random.IntN(len(some))]
}

func (m *mixture) Make(i int, spec plan.Spec) (*plan.Plan, error) {
	spec.Shape = m.all[i].Shape
	m.mu.Lock()
	m.made[kindOf(m.all[i], spec.Ranks)]++
	m.mu.Unlock()
	return m.all[i].Make(spec)
}

// relay is an all_gather in which each rank puts its block into the window of the next rank, from
// which the other ranks get it. The catalogue has no plan whose frames go into windows that peers
// read.
func relay(spec plan.Spec) *plan.Plan {
	n := spec.Ranks
	return &plan.Plan{Name: "relay", Spec: spec, Split: 1, Flags: 2, Win: n, Needs: plan.Puts | plan.Gets,
		Program: func(rank int) plan.Program {
			next, prev := (rank+1)%n, (rank+n-1)%n
			p := plan.Program{}
			for from := range n {
				p.Win = append(p.Win, spec.Extent(1, rank, plan.Out, from))
			}
			lane := []plan.Step{
				{Kind: plan.Put, Dst: chunk(plan.Win, rank), Src: []plan.Ref{chunk(plan.In, 0)}, Peer: next},
				{Kind: plan.Signal, Peer: next},
				{Kind: plan.Wait, Peer: prev},
			}
			for to := range n {
				if to != rank && to != prev {
					lane = append(lane, plan.Step{Kind: plan.Signal, Peer: to, Chan: 1})
				}
			}
			lane = append(lane,
				plan.Step{Kind: plan.Copy, Dst: chunk(plan.Out, rank), Src: []plan.Ref{chunk(plan.In, 0)}},
				plan.Step{Kind: plan.Copy, Dst: chunk(plan.Out, prev), Src: []plan.Ref{chunk(plan.Win, prev)}})
			for from := range n {
				if holder := (from + 1) % n; from != rank && holder != rank {
					lane = append(lane, plan.Step{Kind: plan.Wait, Peer: holder, Chan: 1},
						plan.Step{Kind: plan.Get, Dst: chunk(plan.Out, from), Src: []plan.Ref{chunk(plan.Win, from)},
							Peer: holder})
				}
			}
			p.Lanes = [][]plan.Step{lane}
			return p
		}}
}

func TestRelayIsSound(t *testing.T) {
	for ranks := 2; ranks <= 4; ranks++ {
		_, err := verify.Plan(relay(plan.Spec{Coll: dtype.AllGather, Ranks: ranks}), verify.Options{})
		require.NoError(t, err)
	}
}

// turn is a call that all ranks make, or a message from each rank to the next.
type turn struct {
	coll    dtype.Collective // Send for messages
	typ     dtype.Type
	op      dtype.Op
	root, n int
	uneven  bool
	inPlace bool
	any     bool // the message is received from any rank
}

func (u *turn) String() string {
	return fmt.Sprintf("%v of %d elements (uneven %v, in place %v) of %v, %v, root %d",
		u.coll, u.n, u.uneven, u.inPlace, u.typ, u.op, u.root)
}

// drawTurns returns a sequence of calls. Calls are repeated at random, so that programs are kept.
func drawTurns(seed uint64, ranks, count int) []turn {
	random := randomOf(seed, drawnCalls, 0)
	var all []turn
	for len(all) < count {
		u := turn{coll: dtype.Send, typ: dtype.F32, root: random.IntN(ranks),
			n: []int{0, 1, 13, 13, 13, 13, 700, 700, 3_000, 20_000}[random.IntN(10)]}
		if random.IntN(5) > 0 {
			every := dtype.Collectives()
			if u.coll = every[random.IntN(len(every))]; random.IntN(3) == 0 {
				u.coll = dtype.AllReduce
			}
		}
		u.uneven, u.inPlace, u.any = random.IntN(6) == 0, random.IntN(3) == 0, random.IntN(4) == 0
		switch {
		case u.coll.Reduces() && random.IntN(3) == 0:
			u.typ, u.op = dtype.I64, []dtype.Op{dtype.Sum, dtype.Max}[random.IntN(2)]
		case u.coll.Reduces():
			u.op = []dtype.Op{dtype.Sum, dtype.Sum, dtype.Avg, dtype.PremulSum, dtype.Max}[random.IntN(5)]
		case u.coll == dtype.Send && random.IntN(10) == 0:
			u.n = p2p.EagerLimit/4 + 100
		}
		if u.coll == dtype.AllReduce && random.IntN(16) == 0 {
			u.n = 170_000 // so long that registered memory is exposed
		}
		for range 1 + random.IntN(2)*random.IntN(6) {
			all = append(all, u)
		}
	}
	return all[:count]
}

// memory holds the buffers of one rank for one turn.
type memory struct {
	in, out [][]byte
	given   [][]byte // copies of in from before the call
	got     [][]byte // the result
	spoiled [][]byte // buffers that belong to the caller again
	lent    [][]byte // buffers in registered memory
}

// memory allocates the buffers of a turn, and fills those of In. If there is an arena, some buffers
// are registered memory, at any offset.
func (u *turn) memory(seed uint64, rank, ranks, number int, arena *mem.Arena) *memory {
	random, m := randomOf(seed, drawnInput, rank<<16|number), &memory{}
	room := func(buf plan.Buffer, blocks int) (all [][]byte) {
		for b := range blocks {
			n := u.n
			if u.coll.Valid() {
				spec := plan.Spec{Coll: u.coll, Ranks: ranks, Root: u.root}
				n = blockLength(u.coll, u.n, u.uneven, spec.Extent(1, rank, buf, b))
			}
			// At least 8 bytes more than needed, which no operation uses.
			bytes := n * u.typ.Size()
			if arena != nil && random.IntN(3) > 0 {
				shift := 8 * random.IntN(10)
				if x, err := arena.Alloc(bytes + shift + 8); err == nil {
					m.lent = append(m.lent, x)
					all = append(all, x[shift:][:bytes:bytes])
					continue
				}
			}
			words := make([]uint64, bytes/8+2)
			all = append(all, unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), bytes))
		}
		return all
	}
	in, out := u.coll.InBlocks(ranks, rank, u.root), u.coll.OutBlocks(ranks, rank, u.root)
	if u.coll == dtype.Send {
		out = 1
	}
	m.in, m.out = room(plan.In, in), room(plan.Out, out)
	if u.inPlace && u.coll == dtype.AllReduce {
		m.out = m.in
	}
	for _, x := range m.out {
		clear(x)
	}
	for _, x := range m.in {
		for i := 0; i+u.typ.Size() <= len(x); i += u.typ.Size() {
			if u.typ == dtype.F32 {
				binary.LittleEndian.PutUint32(x[i:], math.Float32bits(float32(random.NormFloat64())))
			} else {
				binary.LittleEndian.PutUint64(x[i:], random.Uint64()>>16)
			}
		}
	}
	m.given = cloned(m.in)
	return m
}

func cloned(all [][]byte) [][]byte {
	copies := make([][]byte, len(all))
	for i, x := range all {
		copies[i] = bytes.Clone(x)
	}
	return copies
}

func (u *turn) blocks(of [][]byte) (all []exec.Block) {
	for _, x := range of {
		all = append(all, exec.Block{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: len(x) / u.typ.Size()})
	}
	return all
}

// started is a posted operation.
type started struct {
	op   *exec.Op
	turn int
	send bool
}

// walker is a rank that makes the calls of all turns.
type walker struct {
	c       *exec.Comm
	arena   *mem.Arena // nil for no registered memory
	seed    uint64
	turns   []turn
	want    [][][]byte // Out by turn, of the undisturbed run; nil in that run itself
	ways    *rand.Rand
	memory  []*memory
	open    []started
	cuts    bool // links are cut, so operations may fail
	err     error
	message bool // the operation that failed is a message
	closed  bool
	at      func(rank, turn int) // called before each turn; may be nil
}

// walk makes all calls. It returns an error if a result is wrong, or if an operation fails in a
// wrong way.
func (w *walker) walk() error {
	rank, ranks := w.c.Rank(), w.c.Size()
	for i := range w.turns {
		u := &w.turns[i]
		if w.at != nil {
			w.at(rank, i)
		}
		m := u.memory(w.seed, rank, ranks, i, w.arena)
		w.memory = append(w.memory, m)
		call := &exec.Call{Coll: u.coll, Type: u.typ, Op: u.op, Root: u.root, Factor: premultiplied,
			In: u.blocks(m.in), Out: u.blocks(m.out)}
		var wrong error
		if u.coll.Valid() {
			wrong = w.begin(call, i, w.ways.IntN(3) == 0)
		} else {
			send, recv := *call, *call
			tag := uint32(i % 3)
			if u.any {
				tag = uint32(100 + i)
			}
			send.Coll, send.Root, send.Tag, send.Out = dtype.Send, (rank+1)%ranks, tag, nil
			recv.Coll, recv.Root, recv.Tag, recv.In = dtype.Recv, (rank+ranks-1)%ranks, tag, nil
			// After a cut some ranks leave. A receive from any rank then waits for others, which
			// may wait likewise: the tests of package p2p say which of them fail.
			if u.any && !w.cuts {
				recv.Root = p2p.AnySource
			}
			first, second := &send, &recv
			if w.ways.IntN(2) == 0 {
				first, second = second, first
			}
			if wrong = w.begin(first, i, false); wrong == nil && w.err == nil {
				wrong = w.begin(second, i, w.ways.IntN(4) == 0)
			}
		}
		for wrong == nil && w.err == nil && len(w.open) > 0 && w.ways.IntN(3) != 0 {
			k := w.ways.IntN(len(w.open))
			s := w.open[k]
			w.open[k] = w.open[len(w.open)-1]
			w.open = w.open[:len(w.open)-1]
			wrong = w.settle(s)
		}
		if wrong != nil {
			return fmt.Errorf("turn %d, %v: %w", i, u, wrong)
		}
		if w.err != nil {
			if err := w.afterFailure(); err != nil {
				return fmt.Errorf("turn %d, %v, after it had failed (%v): %w", i, u, w.err, err)
			}
			break
		}
	}
	for len(w.open) > 0 {
		s := w.open[0]
		w.open = w.open[1:]
		before := w.err
		wrong := w.settle(s)
		if wrong == nil && before == nil && w.err != nil {
			wrong = w.afterFailure()
		}
		if wrong != nil {
			return fmt.Errorf("turn %d, %v, waited for at the end: %w", s.turn, &w.turns[s.turn], wrong)
		}
	}
	for i, m := range w.memory {
		for _, x := range m.spoiled {
			for k := range x {
				if x[k] != spoil {
					return fmt.Errorf("turn %d, %v: byte %d of %d was written after the end", i, &w.turns[i], k, len(x))
				}
			}
		}
	}
	return nil
}

// begin runs a call if run is set, and posts it otherwise.
func (w *walker) begin(call *exec.Call, turn int, run bool) error {
	if run {
		return w.ended(w.c.Run(call), turn, call.Coll == dtype.Send, !call.Coll.Valid())
	}
	op, err := w.c.Post(call)
	if err != nil {
		return w.ended(err, turn, call.Coll == dtype.Send, !call.Coll.Valid())
	}
	w.open = append(w.open, started{op, turn, call.Coll == dtype.Send})
	return nil
}

// settle waits for an operation in one of the possible ways.
func (w *walker) settle(s started) error {
	switch w.ways.IntN(6) {
	case 0:
		for done, _ := s.op.Poll(); !done; done, _ = s.op.Poll() {
			runtime.Gosched()
		}
	case 1:
		s.op.Expedite() // the progress thread drives it
		for {
			ended := exec.Completions.Count()
			if done, _ := s.op.Done(); done {
				break
			}
			exec.Completions.Wait(ended, -1)
		}
	}
	err := s.op.Wait(nil)
	s.op.Free()
	return w.ended(err, s.turn, s.send, w.turns[s.turn].coll == dtype.Send)
}

// ended checks how an operation has ended: with the result of the undisturbed run or, if links were
// cut, with an error that reports this.
func (w *walker) ended(err error, turn int, send, message bool) error {
	if err != nil {
		if w.closed && errors.Is(err, fault.Closed) {
			return nil
		}
		if wrong := w.properly(err); wrong != nil {
			return wrong
		}
		if w.err == nil {
			w.err, w.message = err, message
		}
		return nil
	}
	u, m := &w.turns[turn], w.memory[turn]
	if !message || !send {
		m.got = cloned(m.out)
		if err := w.compare(turn); err != nil {
			return err
		}
		m.release(m.out)
	}
	if !message || send {
		for b, x := range m.in {
			if !(u.inPlace && u.coll == dtype.AllReduce) && !bytes.Equal(x, m.given[b]) {
				return fmt.Errorf("input block %d was changed", b)
			}
		}
		m.release(m.in)
	}
	return nil
}

// spoil is the byte with which the caller fills its buffers when an operation has ended: then no
// rank reads or writes them any more.
const spoil = 0xa5

func (m *memory) release(all [][]byte) {
	m.spoiled = append(m.spoiled, all...)
	for _, x := range all {
		for k := range x {
			x[k] = spoil
		}
	}
}

// properly returns what is wrong with an error. The error must report that a peer is lost or has
// left, which peer, and in which operation of which rank.
func (w *walker) properly(err error) error {
	var f *fault.Error
	switch {
	case !w.cuts:
		return fmt.Errorf("no link was cut: %w", err)
	case !errors.As(err, &f) || f.Code != fault.PeerLost && f.Code != fault.PeerLeft:
		return fmt.Errorf("wants peer lost, or left: %w", err)
	case f.Peer < 0 || f.Peer >= w.c.Size() || f.Peer == w.c.Rank() || f.Op == "" || f.Group == "":
		return fmt.Errorf("not named: %w", err)
	}
	return nil
}

func (w *walker) compare(turn int) error {
	if w.want == nil {
		return nil
	}
	for b, got := range w.memory[turn].got {
		if want := w.want[turn][b]; !bytes.Equal(got, want) {
			at := 0
			for at < len(want) && got[at] == want[at] {
				at++
			}
			return fmt.Errorf("WRONG RESULT: block %d of %d bytes differs from byte %d on: % x, want % x",
				b, len(want), at, got[at:min(at+16, len(got))], want[at:min(at+16, len(want))])
		}
	}
	return nil
}

// afterFailure checks that later calls fail immediately as well: all calls if a collective has
// failed, otherwise messages of the same peer. Then the rank leaves, so that ranks that wait for it
// learn of the failure.
func (w *walker) afterFailure() error {
	var f *fault.Error
	errors.As(w.err, &f)
	x := make([]float32, 3)
	later := map[string]*exec.Call{
		"send": messageCall(dtype.Send, make([]byte, 5), f.Peer, 1<<20),
		"recv": messageCall(dtype.Recv, make([]byte, 5), f.Peer, 1<<20),
	}
	if !w.message {
		later["all_reduce"] = sumCall(x, x)
	}
	for name, call := range later {
		err := w.c.Run(call)
		if err == nil {
			return fmt.Errorf("a later %s has no error", name)
		}
		if err := w.properly(err); err != nil {
			return fmt.Errorf("a later %s: %w", name, err)
		}
		op, err := w.c.Post(call)
		if err == nil {
			err = op.Wait(nil)
			op.Free()
		}
		if err == nil {
			return fmt.Errorf("a later %s that is posted has no error", name)
		}
		if err := w.properly(err); err != nil {
			return fmt.Errorf("a later %s that is posted: %w", name, err)
		}
	}
	w.closed = true
	return w.c.Close()
}

// hang is the timeout by which a test detects a hang: no sequence takes a tenth of it.
const hang = 30 * time.Second

// makeUpOf draws the size of the windows, and whether there is registered memory.
func makeUpOf(seed uint64, network *faulty.Network) makeUp {
	random := randomOf(seed, drawnMakeUp, 0)
	with := makeUp{slot: slotBytes, network: network}
	if random.IntN(3) == 0 {
		with.slot *= 64
	}
	if random.IntN(2) == 0 {
		with.registered = 512 << 20
	}
	return with
}

// journey has all ranks of a group walk. network is nil for links without faults. change, if it is
// not nil, is called for each walker first.
func journey(t *testing.T, name string, m *mixture, ranks int, turns []turn, network *faulty.Network,
	change func(w *walker)) []*walker {
	t.Helper()
	walkers := make([]*walker, ranks)
	for rank, member := range membersOf(t, name, ranks, makeUpOf(m.seed, network)) {
		c := member.comm(t, rank, m)
		c.SetTimeout(hang)
		walkers[rank] = &walker{c: c, arena: member.arena, seed: m.seed, turns: turns,
			ways: randomOf(m.seed, drawnWays, rank)}
		if change != nil {
			change(walkers[rank])
		}
	}
	back := make(chan []error, 1)
	begin := time.Now()
	go func() { back <- eachRank(ranks, func(rank int) error { return walkers[rank].walk() }) }()
	select {
	case errs := <-back:
		for rank, err := range errs {
			require.NoError(t, err, "rank %d; again with -faulty.seed=%d", rank, m.seed)
		}
	case <-time.After(2 * hang):
		stacks := make([]byte, 1<<20)
		t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
		t.Fatalf("HANG; again with -faulty.seed=%d", m.seed)
	}
	lent := uint64(0)
	for _, w := range walkers {
		lent += w.c.Exposed()
	}
	t.Logf("seed %d: %d turns of %d ranks, %d of them lent memory, took %v",
		m.seed, len(turns), ranks, lent, time.Since(begin))
	// A sleeping thread that no ring has woken checks again at its deadline, and may then find that
	// all is well.
	require.Less(t, time.Since(begin), hang, "somebody was not woken; again with -faulty.seed=%d", m.seed)
	for _, w := range walkers {
		w.c.Close()
	}
	for _, w := range walkers {
		for _, each := range w.memory {
			for _, x := range each.lent {
				require.NoError(t, w.arena.Free(unsafe.Pointer(&x[0])))
			}
		}
	}
	return walkers
}

// drawFaults returns disturbances that are permitted by the contract of transports, and so are no
// faults. Most of them act on all links.
func drawFaults(seed uint64, ranks int) []faulty.Fault {
	random := randomOf(seed, drawnFaults, 0)
	every := faulty.Fault{From: faulty.Any, To: faulty.Any, Channel: faulty.Any, Fragment: faulty.Any}
	jitter, slow, short, hungry, wakes, late := every, every, every, every, every, every
	jitter.OneIn, jitter.Jitter = 3+random.IntN(10), time.Duration(1+random.IntN(300))*time.Microsecond
	slow.From, slow.Channel, slow.Delay =
		random.IntN(ranks), random.IntN(exec.LinkChannels(exec.PlanChannels)), 200*time.Microsecond
	short.OneIn, short.Short = 2+random.IntN(4), 64<<random.IntN(8) // not all, which would be very many fragments
	hungry.OneIn, hungry.Starve = 4+random.IntN(10), time.Duration(1+random.IntN(300))*time.Microsecond
	wakes.Channel, wakes.OneIn, wakes.Jitter =
		faulty.Wakes, 1+random.IntN(4), time.Duration(1+random.IntN(500))*time.Microsecond
	// So late that ranks ask each other which operation they are in.
	late.From, late.Fragment, late.Delay = random.IntN(ranks), random.IntN(8), 70*time.Millisecond
	var some []faulty.Fault
	add := func(all ...faulty.Fault) {
		for _, f := range all {
			if random.IntN(4) > 0 {
				some = append(some, f)
			}
		}
	}
	add(jitter, slow, short, hungry, wakes, late)
	far, lingers := every, every
	far.From, far.Channel, far.RoundTrip = random.IntN(ranks), faulty.State, time.Millisecond
	lingers.OneIn, lingers.Linger = 4+random.IntN(10), time.Duration(1+random.IntN(300))*time.Microsecond
	add(far, lingers)
	return some
}

// crossings runs a test on all transports, for each seed. The seed determines the number of ranks.
func crossings(t *testing.T, fixed int, run func(t *testing.T, name string, seed uint64, ranks int)) {
	if testing.Short() || underRace {
		fixed = 1
	}
	for _, seed := range seedsOf(fixed) {
		ranks := 2 + int(seed%3)
		for _, name := range []string{"inproc", "shm", "tcp"} {
			t.Run(fmt.Sprintf("%s/%d ranks/%d", name, ranks, seed), func(t *testing.T) { run(t, name, seed, ranks) })
		}
	}
}

const fewTurns = 30

// turnsOf returns the number of calls in a sequence.
func turnsOf() int {
	if testing.Short() || underRace {
		return fewTurns
	}
	return 50
}

// undisturbed returns the results of the sequence over links without faults: the blocks of Out by
// rank and turn.
func undisturbed(t *testing.T, name string, m *mixture, ranks int, turns []turn) [][][][]byte {
	want := make([][][][]byte, ranks)
	for rank, w := range journey(t, name, m, ranks, turns, nil, nil) {
		for _, each := range w.memory {
			want[rank] = append(want[rank], each.got)
		}
	}
	return want
}

// TestDisturbed checks that a sequence of calls of all kinds gives the same bits whatever the links
// do within their contract: fragments and wake-ups that are late, channels that overtake each
// other, little space and for a while none.
func TestDisturbed(t *testing.T) {
	made := map[plan.Need]int{}
	crossings(t, 3, func(t *testing.T, name string, seed uint64, ranks int) {
		turns := drawTurns(seed, ranks, turnsOf())
		m := newMixture(ranks, seed, name != "tcp")
		want := undisturbed(t, name, m, ranks, turns)
		network := faulty.NewNetwork(drawFaults(seed, ranks)...)
		network.Seed = seed
		journey(t, name, m, ranks, turns, network, func(w *walker) { w.want = want[w.c.Rank()] })
		t.Logf("seed %d: plans %v, %+v, faults %+v", seed, m.made, makeUpOf(seed, nil), drawFaults(seed, ranks))
		for kind, n := range m.made {
			made[kind] += n
		}
	})
	if *faultySeed == 0 && !t.Failed() {
		for _, kind := range kinds {
			require.NotZero(t, made[kind], "no plan of %v ran", kind)
		}
	}
}

// TestCutOff breaks a link in the middle of a sequence. Each operation of each rank must end with
// the right result or name the lost peer, and so must the operations after it.
func TestCutOff(t *testing.T) {
	var mu sync.Mutex
	failed, messages, passed := 0, 0, 0
	crossings(t, 2, func(t *testing.T, name string, seed uint64, ranks int) {
		turns := drawTurns(seed, ranks, turnsOf())
		m := newMixture(ranks, seed, name != "tcp")
		want := undisturbed(t, name, m, ranks, turns)
		random := randomOf(seed, drawnFaults, 1)
		a := random.IntN(ranks)
		b := (a + 1 + random.IntN(ranks-1)) % ranks
		var faults []faulty.Fault
		if random.IntN(2) == 0 {
			faults = drawFaults(seed, ranks)
		}
		// The link breaks either at a fragment, which does not arrive, or when a rank comes to a
		// turn: plans that move all data in windows send no fragments.
		fragment, cutter, moment := -1, -1, -1
		if random.IntN(2) == 0 {
			fragment = random.IntN(30)
			faults = append(faults, faulty.Fault{From: a, To: b, Channel: faulty.Any, Fragment: fragment, Cut: true})
		} else {
			cutter, moment = random.IntN(ranks), random.IntN(fewTurns) // a turn that short runs have, too
		}
		network := faulty.NewNetwork(faults...)
		network.Seed = seed
		walkers := journey(t, name, m, ranks, turns, network, func(w *walker) {
			w.cuts, w.want = true, want[w.c.Rank()]
			w.at = func(rank, turn int) {
				if rank == cutter && turn == moment {
					network.Cut(a, b)
				}
			}
		})
		t.Logf("seed %d: link %d-%d cut at fragment %d, or by rank %d at turn %d of %d",
			seed, a, b, fragment, cutter, moment, len(turns))
		mu.Lock()
		defer mu.Unlock()
		for _, w := range walkers {
			switch {
			case w.err == nil:
				passed++
			case w.message:
				messages++
			default:
				failed++
			}
			t.Logf("rank %d came to turn %d: %v", w.c.Rank(), len(w.memory), w.err)
		}
	})
	t.Logf("%d ranks failed in a collective, %d in a message, %d passed", failed, messages, passed)
	if *faultySeed == 0 && !t.Failed() {
		require.NotZero(t, failed)
	}
}
