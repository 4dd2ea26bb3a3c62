package exec

import (
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/transport"
)

// programs makes the programs of a rank, and keeps those of calls that came more than once.
type programs struct {
	planner   Planner
	fastBF16  bool
	lastLevel int          // bytes of the last-level cache that this rank can count on; 0 if unknown
	room      program.Room // what the windows and links offer to programs
	lows      map[planKey]*program.Lowered
	last      planKey // key of lastLow, the plan that was used last
	lastLow   *program.Lowered
	kept      cache
	scratch   compiled // for calls whose program is not kept
}

type planKey struct {
	coll      dtype.Collective
	algorithm int
	root      int
}

// compiled is a program, together with everything else that this processor needs to run it.
type compiled struct {
	program.Program
	arithmetic
	fingerprint      transport.Meta // the part of fingerprints that depends on the call, not on number and history
	digest           uint64         // what the call adds to the history
	what             uint64         // fingerprint.Fields.What
	meets            bool           // fingerprint.Fields.Meets
	length           uint64         // of each block, or program.Uneven
	simple           bool           // it is straight, has no messages and no Tmp, and exposes nothing
	short            bool           // ranks keep their core as long as no other rank waits for it (window.Set.MaySpin)
	exposes          bool           // it may expose registered memory to the peers
	readsUnannounced bool           // it may read a rank's window before that rank's record shows where the chunks are
	until            uint64         // Turn.Until
}

// lowered finds or makes the lowered plan of a collective.
func (s *programs) lowered(by Planner, coll dtype.Collective, root int, bytes int64) (*program.Lowered, error) {
	return s.lowerAs(by, coll, by.Choose(coll, bytes), root)
}

// lowerAs is lowered for an algorithm.
func (s *programs) lowerAs(by Planner, coll dtype.Collective, algorithm, root int) (*program.Lowered, error) {
	key := planKey{coll: coll, algorithm: algorithm}
	if coll.Rooted() {
		key.root = root
	}
	if key == s.last && s.lastLow != nil {
		return s.lastLow, nil
	}
	if low := s.lows[key]; low != nil {
		s.last, s.lastLow = key, low
		return low, nil
	}
	p, err := by.Make(key.algorithm, plan.Spec{Coll: coll, Ranks: s.room.Ranks, Root: key.root})
	if err != nil {
		return nil, err
	}
	low, err := program.Lower(p, &s.room)
	if err == nil {
		s.lows[key] = low
	}
	return low, err
}

// compile makes p the program of a call, or of one piece of it. p refers to none of the call's
// memory.
func (s *programs) compile(
	p *compiled, low *program.Lowered, call *Call, lengths *program.Lengths, piece int,
) error {
	if err := p.Compile(&s.room, low, call, lengths, piece); err != nil {
		return err
	}
	bytes := program.Total(p.Chunks[plan.Win])
	p.short = bytes <= window.MaxKept
	p.exposes = low.Exposes && !(call.Coll.Reduces() && call.Op == dtype.PremulSum) &&
		(p.Last > 0 || bytes >= worthExposing(call.Coll))
	p.readsUnannounced = low.ReadsUnannounced
	p.simple = p.Straight && !p.Messages && p.Tmp == 0 && !p.exposes
	s.chooseKernels(p, call)
	p.sign(call)
	p.until = never
	return nil
}

// chooseKernels chooses the kernels of a call.
func (s *programs) chooseKernels(p *compiled, call *Call) {
	p.streams = streams(touched(call, s.room.Rank), s.lastLevel, call.Coll.Reduces(), kernel.Claims())
	if !call.Coll.Reduces() {
		return
	}
	unit, _ := dtype.Unit(call.Type, call.Op)
	p.kern, p.fold = kernel.For(unit, call.Op), kernel.Reduce(unit, call.Op)
	p.scale, p.mean = kernel.Scale(unit), kernel.SumScale(unit)
	if fast := kernel.Fast(unit, call.Op); fast != nil && s.fastBF16 {
		p.kern, p.fold, p.mean = fast.Pair, fast.Many, fast.Mean
	}
}

// sign computes the part of fingerprints that depends only on the call.
func (p *compiled) sign(call *Call) {
	print := fingerprint.Of(call, p.Low.Hash)
	print.Phase = fingerprint.PhaseOf(p.Piece)
	p.digest, p.length = print.Digest(), blockLength(call)
	p.what, p.meets = print.What(), print.Meets()
	p.fingerprint = print.Meta(0)
	if p.Low.Announces {
		p.fingerprint[1] |= uint64(p.Last)
		p.fingerprint[2] |= program.EvenCount(call.In)
	}
}

// blockLength returns the length of each block of a call, or program.Uneven.
func blockLength(call *Call) uint64 {
	switch {
	case len(call.In) > 0:
		return program.EvenCount(call.In)
	case len(call.Out) > 0:
		return program.EvenCount(call.Out)
	}
	return 0
}

// A cache keeps up to keptPrograms programs, none with more than mostKeptInstructions instructions,
// and remembers the shapes of up to keptKeys calls that came once, by their keys. With 64 programs,
// 40 calls in turn by ring on 8 ranks took longer than when they are compiled anew, in place: the
// programs did not fit the second-level cache.
const (
	keptPrograms         = 16
	keptKeys             = 16
	mostKeptInstructions = 1024
)

// cache keeps the programs of calls that came more than once. Applications repeat the same calls,
// and compiling a program takes longer than running it.
type cache struct {
	each     [keptPrograms]cached
	keys     [keptPrograms]uint64 // of the calls of each; beside each other, to be searched fast
	recent   uint                 // index of the program that was used last
	next     uint                 // index of the program to replace next
	missed   uint64               // key of the call that was not found last
	seen     [keptKeys]uint64     // keys of calls that came once
	nextSeen uint
	closed   bool
}

type cached struct {
	program.Shape
	compiled
}

// of returns the program of a call, or nil if the cache has none, and whether the call's blocks are
// at the same addresses as before. Most calls repeat the last one, or the one that came after it
// the time before; the others are found by their key.
func (s *cache) of(call *Call) (x *cached, same bool) {
	for i := range uint(2) {
		at := (s.recent + i) % keptPrograms
		if x := &s.each[at]; x.Coll() == call.Coll {
			if is, same := x.Compare(call); is {
				s.recent = at
				return x, same
			}
		}
	}
	return s.find(call)
}

// find is of for calls that are not expected to have a program.
func (s *cache) find(call *Call) (x *cached, same bool) {
	key := call.Key()
	if key == s.missed {
		return nil, false
	}
	if at := slices.Index(s.keys[:], key); at >= 0 {
		if is, same := s.each[at].Compare(call); is {
			s.recent = uint(at)
			return &s.each[at], same
		}
	}
	s.missed = key
	return nil, false
}

// known returns a program by which a call can run without further checks, or nil. It has then made
// the checks of Call.Check and those of begin.
func (s *programs) known(call *Call) *compiled {
	if x, same := s.kept.of(call); x != nil && (same || x.fits(call, s.room.Rank)) && call.Timeout >= 0 {
		return &x.compiled
	}
	return nil
}

// fits reports whether the buffers of a call are valid for the program: blocks with elements have
// memory, and blocks overlap only in ways that the plan allows.
func (x *cached) fits(call *Call, rank int) bool {
	for _, blocks := range [2][]Block{call.In, call.Out} {
		for _, b := range blocks {
			if b.Ptr == nil && b.Count > 0 {
				return false
			}
		}
	}
	inPlace, err := call.Overlap(rank)
	if err != nil || inPlace && x.Low.Alias&plan.InPlace == 0 {
		return false
	}
	x.TakeBlocks(call)
	return true
}

// program compiles the program of a call that find has not found. It is kept if the call comes for
// the second time.
func (s *programs) program(low *program.Lowered, call *Call, lengths *program.Lengths) (*compiled, error) {
	p := &s.scratch
	err := s.compile(p, low, call, lengths, 0)
	if err != nil || low.Counts || p.Last > 0 || p.Size() > mostKeptInstructions || !s.kept.wants() {
		return p, err
	}
	return s.kept.keep(call, p), nil
}

// wants reports whether the program of the call that was not found last is to be kept.
func (s *cache) wants() bool { return !s.closed && s.seenBefore(s.missed) }

// keep keeps the program of that call, in exchange for an old one.
func (s *cache) keep(call *Call, p *compiled) *compiled {
	at := s.next
	x := &s.each[at]
	x.Take(call)
	x.compiled, *p = *p, x.compiled
	s.keys[at], s.missed = s.missed, 0
	s.recent, s.next = at, (at+1)%keptPrograms
	return &x.compiled
}

// drop forgets the call that was found last, as if it had not been found.
func (s *cache) drop() {
	s.missed, s.keys[s.recent] = s.keys[s.recent], 0
	s.each[s.recent].Shape = program.Shape{}
}

// close forgets all calls, and keeps no more. A program that is in use stays as it is.
func (s *cache) close() {
	s.closed = true
	for i := range s.each {
		s.each[i].Shape = program.Shape{}
	}
	clear(s.keys[:])
	clear(s.seen[:])
	s.missed = 0
}

// seenBefore reports whether a call with this key came before. It remembers the key if not.
func (s *cache) seenBefore(key uint64) bool {
	if i := slices.Index(s.seen[:], key); i >= 0 {
		s.seen[i] = 0
		return true
	}
	s.seen[s.nextSeen] = key
	s.nextSeen = (s.nextSeen + 1) % keptKeys
	return false
}
