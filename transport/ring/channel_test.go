package ring

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

// end is one end of a link under test, with the damage that its channels reported.
type end struct {
	memory   []byte
	channels []Channel
	damage   []string
}

func memoryOf(t testing.TB, n int) []byte {
	b, err := mem.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { b.Free() })
	return b.Bytes()
}

// newLink joins two ends, each of which sends with a pool of the given number of slots.
func newLink(t testing.TB, channels, slots int) (a, b *end, pools [2]*Pool) {
	return newLinkOf(t, channels, slots, SlotBytes, SlotBytes)
}

// newLinkOf is newLink with private slots of the given sizes on the two sides.
func newLinkOf(t testing.TB, channels, slots, slotA, slotB int) (a, b *end, pools [2]*Pool) {
	a, b = &end{memory: memoryOf(t, channels*AreaBytes(slotA))}, &end{memory: memoryOf(t, channels*AreaBytes(slotB))}
	poolA, poolB := memoryOf(t, max(slots, 1)*LeaseBytes)[:slots*LeaseBytes],
		memoryOf(t, max(slots, 1)*LeaseBytes)[:slots*LeaseBytes]
	pools = [2]*Pool{NewPool(poolA), NewPool(poolB)}
	doorbell := park.NewDoorbell()
	a.channels = Open(channels, Ends{a.memory, b.memory, slotA, slotB, pools[0], poolB, doorbell, nil,
		func(s string) { a.damage = append(a.damage, s) }})
	b.channels = Open(channels, Ends{b.memory, a.memory, slotB, slotA, pools[1], poolA, doorbell, nil,
		func(s string) { b.damage = append(b.damage, s) }})
	return a, b, pools
}

var someMeta = transport.Meta{1, 2, 3}

func commit(t *testing.T, c *Channel, n, lent int) {
	t.Helper()
	require.Len(t, c.Reserve(n), lent)
	c.Commit(lent, &someMeta)
}

func consume(t *testing.T, c *Channel) {
	t.Helper()
	_, _, ok := c.Peek()
	require.True(t, ok)
	c.Release()
}

func TestLayout(t *testing.T) {
	require.Equal(t, 128+Depth*64+Depth*SlotBytes, ChannelBytes)
	require.Zero(t, ChannelBytes%64)
	number, kind, n := unpackWord(packWord(0xfffffffe, inPool, LeaseBytes))
	require.Equal(t, []any{uint32(0xfffffffe), inPool, LeaseBytes}, []any{number, kind, n})
}

func TestCreditIsDepth(t *testing.T) {
	a, b, _ := newLink(t, 1, 0)
	for range 3 * Depth {
		for range Depth {
			commit(t, &a.channels[0], 10, 10)
		}
		require.Nil(t, a.channels[0].Reserve(0))
		consume(t, &b.channels[0])
		commit(t, &a.channels[0], 10, 10)
		require.Nil(t, a.channels[0].Reserve(0))
		for range Depth {
			consume(t, &b.channels[0])
		}
	}
}

// TestNumbersWrap runs past the largest number of a fragment.
func TestNumbersWrap(t *testing.T) {
	a, b, pools := newLink(t, 1, 2)
	start := uint64(1<<32 - 20)
	s, r := &a.channels[0], &b.channels[0]
	s.head, s.tail, r.next = start, start, start
	r.released.Store(start)
	for i := range 100 {
		n := []int{8, 1000, LeaseBytes}[i%3]
		commit(t, s, n, n)
		consume(t, r)
	}
	require.Empty(t, a.damage)
	require.Zero(t, s.Close())
	require.Equal(t, 2, pools[0].Free())
}

// TestSeriesShareSlots checks that the fragments of a series follow each other in one slot of the
// pool, until it is full or the series ends.
func TestSeriesShareSlots(t *testing.T) {
	a, b, pools := newLink(t, 1, 2)
	s, r := &a.channels[0], &b.channels[0]
	for range 3 { // the same memory each time
		var places []int
		for range 5 { // 30 KiB each: four fill a slot
			lent := s.Reserve(30_000)
			places = append(places, int(uintptr(unsafe.Pointer(&lent[0]))-uintptr(unsafe.Pointer(&pools[0].memory[0]))))
			s.Publish(len(lent), &someMeta)
		}
		require.Equal(t, places[0]+3*30_016, places[3])
		require.Equal(t, LeaseBytes-places[0], places[4])
		require.Equal(t, 2, s.leases)
		s.Flush()
		for range 5 {
			payload, meta := r.Look()
			require.Len(t, payload, 30_000)
			require.Equal(t, someMeta, *meta)
			r.Consume()
		}
		r.Flush()
		_, meta := r.Look()
		require.Nil(t, meta)
		commit(t, r, 100, 100) // it carries the count of fragments given back
		consume(t, s)
		require.Len(t, s.Reserve(30_000), 30_000)
		require.Equal(t, 1, s.leases)
	}
	require.Zero(t, s.Close())
	require.Equal(t, 2, pools[0].Free())
}

// TestSeriesMoveOn checks that an end that claims memory begins a series where the one before has
// ended, and claims where the next one will be while the peer does not read there.
func TestSeriesMoveOn(t *testing.T) {
	a, b, pools := newLink(t, 1, 2)
	s, r := &a.channels[0], &b.channels[0]
	place := func(p []byte) int {
		return int(uintptr(unsafe.Pointer(&p[0])) - uintptr(unsafe.Pointer(&pools[0].memory[0])))
	}
	var claimed []int // beginning and length of each claim
	s.claim = func(next []byte) { claimed = append(claimed, place(next), len(next)) }
	exchange := func(n int) (at int) {
		lent := s.Reserve(n)
		require.Len(t, lent, n)
		at = place(lent)
		s.Publish(n, &someMeta)
		s.Flush()
		consume(t, r)
		commit(t, r, 100, 100) // it carries the count of fragments given back
		consume(t, s)
		return at
	}
	first := exchange(30_000)
	require.Equal(t, []int{first + 30_016, 30_016}, claimed)
	for i := range 6 { // four of these fill the slot
		require.Equal(t, first+(i+1)%4*30_016, exchange(30_000))
	}
	require.Equal(t, first+90_048, exchange(40_000))
	require.Equal(t, []int{first, 40_000 &^ 63}, claimed[len(claimed)-2:])
	claimed = nil
	require.Equal(t, first, exchange(100_000))
	require.Empty(t, claimed, "the next one would begin where this one is")
	require.Equal(t, first, exchange(LeaseBytes))
	require.Equal(t, first, exchange(LeaseBytes))
	require.Empty(t, claimed)

	require.Equal(t, first, place(s.Reserve(30_000)))
	require.Len(t, s.Reserve(100), 100) // the slot goes back
	s.Commit(100, &someMeta)
	consume(t, r)
	require.Zero(t, s.Close())
	require.Equal(t, 2, pools[0].Free())
}

// TestSeriesAtRandom sends series of fragments of all sizes in both directions, and finds every
// byte where it should be and all slots at the end. One end claims memory: nothing that the peer
// has yet to read.
func TestSeriesAtRandom(t *testing.T) {
	a, b, pools := newLink(t, 1, 3)
	ends := [2]*Channel{&a.channels[0], &b.channels[0]}
	claims := 0
	ends[0].claim = func(next []byte) {
		claims++
		for i := range next {
			next[i] = 0xee // as nothing but a claim may: it would spoil what is unread
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var sent [2][][]byte
	for range 20_000 {
		side := rng.IntN(2)
		c := ends[side]
		switch rng.IntN(4) {
		case 0, 1:
			if lent := c.Reserve([]int{8, 1000, 5000, 30_000, LeaseBytes}[rng.IntN(5)]); lent != nil {
				if _, meta := c.Look(); meta != nil && rng.IntN(4) == 0 { // reserved space stays reserved
					sent[1-side] = sent[1-side][1:]
					c.Consume()
					c.Flush()
				}
				n := rng.IntN(len(lent) + 1)
				for i := 0; i < n; i += 61 {
					lent[i] = byte(rng.Uint32())
				}
				sent[side] = append(sent[side], bytes.Clone(lent[:n]))
				c.Publish(n, &transport.Meta{uint64(n)})
			}
		case 2:
			if payload, meta := c.Look(); meta != nil {
				require.Equal(t, uint64(len(payload)), meta[0])
				require.True(t, bytes.Equal(sent[1-side][0], payload))
				sent[1-side] = sent[1-side][1:]
				c.Consume()
			}
		default:
			c.Flush()
		}
	}
	require.Greater(t, claims, 100)
	require.Empty(t, a.damage)
	require.Empty(t, b.damage)
	for side, c := range ends {
		for range sent[1-side] {
			consume(t, c)
		}
	}
	for side, c := range ends {
		require.Zero(t, c.Close())
		require.Equal(t, 3, pools[side].Free())
	}
}

func TestLeasesAreLimited(t *testing.T) {
	a, b, pools := newLink(t, 2, MaxLeases+2)
	c := &a.channels[0]
	for range MaxLeases {
		commit(t, c, transport.MaxFragment, LeaseBytes)
	}
	require.Nil(t, c.Reserve(LeaseBytes), "a channel has no credit for more large fragments")
	commit(t, c, SlotBytes, SlotBytes) // but has credit for small ones
	require.Equal(t, 2, pools[0].Free())
	other := &a.channels[1]
	commit(t, other, LeaseBytes, LeaseBytes)
	commit(t, other, LeaseBytes, LeaseBytes)
	commit(t, other, LeaseBytes, SlotBytes) // the pool is empty: less is lent, never nothing
	consume(t, &b.channels[0])
	commit(t, c, LeaseBytes, LeaseBytes)
}

// TestIdleChannelsGiveBack has one channel hold released slots that it never reclaims.
func TestIdleChannelsGiveBack(t *testing.T) {
	a, b, pools := newLink(t, 2, MaxLeases)
	for range MaxLeases {
		commit(t, &a.channels[0], LeaseBytes, LeaseBytes)
	}
	for range MaxLeases / 2 {
		consume(t, &b.channels[0])
	}
	large := 0
	for range scanEvery + 1 {
		space := a.channels[1].Reserve(LeaseBytes)
		require.NotNil(t, space)
		if len(space) == LeaseBytes {
			large++
			a.channels[1].Commit(1, &someMeta)
			consume(t, &b.channels[1])
		}
	}
	require.NotZero(t, large)
	// The idle channel's own bookkeeping agrees when it becomes active again.
	a.channels[0].reclaim()
	require.Equal(t, MaxLeases/2, a.channels[0].leases)
	for range MaxLeases / 2 {
		consume(t, &b.channels[0])
	}
	a.channels[0].reclaim()
	a.channels[1].reclaim()
	a.channels[1].Close()
	require.Equal(t, MaxLeases, pools[0].Free())
}

// TestSparesAreLentToOthers has one channel keep slots for itself until another channel asks for
// them.
func TestSparesAreLentToOthers(t *testing.T) {
	a, b, pools := newLink(t, 2, MaxSpare)
	keeper, other := &a.channels[0], &a.channels[1]
	for range MaxSpare {
		commit(t, keeper, LeaseBytes, LeaseBytes)
	}
	for range MaxSpare {
		consume(t, &b.channels[0])
	}
	commit(t, keeper, LeaseBytes, LeaseBytes) // one of them is in use again
	require.Zero(t, pools[0].Free())
	for range MaxSpare - 1 {
		commit(t, other, LeaseBytes, LeaseBytes)
	}
	commit(t, other, LeaseBytes, SlotBytes)
	commit(t, keeper, LeaseBytes, SlotBytes) // it finds that they are gone
	consume(t, &b.channels[0])
	commit(t, keeper, LeaseBytes, LeaseBytes)
	require.Equal(t, 1, keeper.Close())
	require.Equal(t, MaxSpare-1, other.Close())
	require.Zero(t, pools[0].Free())
	keeper.Forget()
	other.Forget()
	require.Equal(t, MaxSpare, pools[0].Free())
}

func TestLastSlotFirst(t *testing.T) {
	a, b, _ := newLink(t, 1, 4)
	var first *byte
	for i := range 40 {
		space := a.channels[0].Reserve(LeaseBytes)
		if i == 0 {
			first = &space[0]
		}
		require.Same(t, first, &space[0], "a slot that has come back is used again while it is in the caches")
		a.channels[0].Commit(LeaseBytes, &someMeta)
		consume(t, &b.channels[0])
	}
}

func TestCloseKeepsUnreadSlots(t *testing.T) {
	a, b, pools := newLink(t, 1, 4)
	for range 3 {
		commit(t, &a.channels[0], LeaseBytes, LeaseBytes)
	}
	consume(t, &b.channels[0])
	require.NotNil(t, a.channels[0].Reserve(LeaseBytes)) // forgotten
	require.Equal(t, 2, a.channels[0].Close())
	require.Equal(t, 2, pools[0].Free(), "two fragments may still be read")
	require.Nil(t, a.channels[0].Reserve(1))
	_, _, ok := a.channels[0].Peek()
	require.False(t, ok)
	consume(t, &b.channels[0])
	consume(t, &b.channels[0])
	a.channels[0].Forget()
	require.Equal(t, 4, pools[0].Free())
}

func TestDamageIsFound(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(*area)
		found  string
	}{
		{"length of a line", func(a *area) { a.lines[0].word.Store(packWord(1, inLine, InlineBytes+1)) }, "25 bytes"},
		{"length of a slot", func(a *area) { a.lines[0].word.Store(packWord(1, inSlot, SlotBytes+1)) }, "2049 bytes"},
		{"length of a lease", func(a *area) { a.lines[0].word.Store(packWord(1, inPool, LeaseBytes+1)) },
			"131073 bytes"},
		{"kind", func(a *area) { a.lines[0].word.Store(packWord(1, 0, 1)) }, "kind 0"},
		{"slot", func(a *area) {
			*a.lines[0].place() = 4 * LeaseBytes
			a.lines[0].word.Store(packWord(1, inPool, 1))
		}, "byte 524288 of a pool of 524288"},
		{"end of a slot", func(a *area) {
			*a.lines[0].place() = 4*LeaseBytes - 99
			a.lines[0].word.Store(packWord(1, inPool, 100))
		}, "byte 524189 of a pool of 524288"},
		{"large slot", func(a *area) {
			*a.lines[0].place() = ^uint64(0)
			a.lines[0].word.Store(packWord(1, inPool, 1))
		}, "byte 18446744073709551615"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b, _ := newLink(t, 1, 4)
			tt.damage(areaAt(a.memory, 0, SlotBytes))
			for range 2 {
				_, _, ok := b.channels[0].Peek()
				require.False(t, ok)
			}
			require.Len(t, b.damage, 1)
			require.Contains(t, b.damage[0], tt.found)
			require.Nil(t, b.channels[0].Reserve(1))
		})
	}
	t.Run("counter", func(t *testing.T) {
		a, b, pools := newLink(t, 1, 4)
		commit(t, &a.channels[0], LeaseBytes, LeaseBytes)
		areaAt(b.memory, 0, SlotBytes).released.Store(2)
		require.Nil(t, a.channels[0].Reserve(LeaseBytes))
		require.Len(t, a.damage, 1)
		require.Contains(t, a.damage[0], "2 fragments of 1")
		require.Equal(t, 3, pools[0].Free(), "nobody else gets the slot while the peer is there")
	})
	t.Run("count in a line", func(t *testing.T) {
		a, b, pools := newLink(t, 1, 4)
		commit(t, &a.channels[0], LeaseBytes, LeaseBytes)
		commit(t, &b.channels[0], LeaseBytes, LeaseBytes)
		areaAt(b.memory, 0, SlotBytes).lines[0].given = 2
		consume(t, &a.channels[0])
		require.Nil(t, a.channels[0].Reserve(LeaseBytes))
		require.Len(t, a.damage, 1)
		require.Contains(t, a.damage[0], "2 fragments of 1")
		require.Equal(t, 3, pools[0].Free())
	})
	t.Run("counter and a slot that is being filled", func(t *testing.T) {
		a, b, pools := newLink(t, 2, 1)
		mine := a.channels[0].Reserve(LeaseBytes)
		require.Len(t, mine, LeaseBytes)
		areaAt(b.memory, 0, SlotBytes).released.Store(1)
		for range 2 * scanEvery {
			require.Len(t, a.channels[1].Reserve(LeaseBytes), SlotBytes)
		}
		require.Zero(t, pools[0].Free())
	})
}

// TestSmallSlots gives one end the smallest private slots: a payload too large for them takes a
// slot of the pool, and is cut where the pool is empty.
func TestSmallSlots(t *testing.T) {
	require.Equal(t, headBytes+Depth*LeastSlot, AreaBytes(LeastSlot))
	require.Zero(t, AreaBytes(LeastSlot)%64)
	a, b, pools := newLinkOf(t, 2, 1, LeastSlot, SlotBytes)
	across := func(from, to *Channel, n, lent int, fill byte) {
		t.Helper()
		space := from.Reserve(n)
		require.Len(t, space, lent)
		for i := range space {
			space[i] = fill
		}
		from.Commit(lent, &someMeta)
		got, _, ok := to.Peek()
		require.True(t, ok)
		require.Equal(t, bytes.Repeat([]byte{fill}, lent), got)
	}
	for i := range 3 * Depth {
		across(&a.channels[0], &b.channels[0], LeastSlot, LeastSlot, byte(i))
		b.channels[0].Release()
		across(&a.channels[0], &b.channels[0], LeastSlot+1, LeastSlot+1, byte(i+100))
		if i == 0 {
			require.Zero(t, pools[0].Free())
			commit(t, &a.channels[1], SlotBytes, LeastSlot)
			consume(t, &b.channels[1])
		}
		b.channels[0].Release()
		across(&b.channels[0], &a.channels[0], SlotBytes, SlotBytes, byte(i+200)) // larger slots in this direction
		a.channels[0].Release()
	}
	areaAt(a.memory, 1, LeastSlot).lines[a.channels[1].head%Depth].word.Store(
		packWord(uint32(a.channels[1].head)+1, inSlot, LeastSlot+1))
	_, _, ok := b.channels[1].Peek()
	require.False(t, ok, "longer than the slots of that end")
	require.Len(t, b.damage, 1)
	require.Contains(t, b.damage[0], "257 bytes")
	for _, wrong := range []int{-64, 0, 64, LeastSlot + 1, SlotBytes + 64} {
		require.False(t, CheckSlot(wrong), wrong)
	}
	require.True(t, CheckSlot(LeastSlot) && CheckSlot(SlotBytes) && CheckSlot(512))
}

func TestMisuseIsLoud(t *testing.T) {
	a, _, _ := newLink(t, 1, 1)
	require.Panics(t, func() { a.channels[0].Commit(1, &someMeta) })
	require.Panics(t, func() { a.channels[0].Release() })
	require.Len(t, a.channels[0].Reserve(10), 10)
	require.Panics(t, func() { a.channels[0].Commit(11, &someMeta) })
}

// TestPoolUnderThreads has channels of several threads share a small pool. Each thread fills its
// slots with its own byte and checks that this byte arrives.
func TestPoolUnderThreads(t *testing.T) {
	const channels = 4
	a, b, pools := newLink(t, channels, 5)
	errs := make(chan string, channels)
	for i := range channels {
		go func() {
			s, r := &a.channels[i], &b.channels[i]
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 3000 {
				for range random.IntN(4) {
					space := s.Reserve(1 + random.IntN(LeaseBytes))
					if space == nil {
						break
					}
					space[0], space[len(space)/2], space[len(space)-1] = byte(i), byte(i), byte(i)
					s.Commit(len(space), &someMeta)
				}
				for range random.IntN(4) {
					p, _, ok := r.Peek()
					if !ok {
						break
					}
					if p[0] != byte(i) || p[len(p)/2] != byte(i) || p[len(p)-1] != byte(i) {
						errs <- "a slot was lent to two channels at a time"
						return
					}
					r.Release()
				}
			}
			errs <- ""
		}()
	}
	for range channels {
		require.Empty(t, <-errs)
	}
	require.Empty(t, append(a.damage, b.damage...))
	for i := range channels {
		a.channels[i].Close()
		a.channels[i].Forget()
	}
	require.Equal(t, 5, pools[0].Free())
}

// FuzzHostilePeer lets a peer write anything where this side reads, between calls of every method.
func FuzzHostilePeer(f *testing.F) {
	word := binary.LittleEndian.AppendUint64(nil, packWord(1, inPool, 100))
	f.Add([]byte{0, 8, 0, 1, 2, 3}, word)
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7}, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, calls, writes []byte) {
		a, b, pools := newLink(t, 1, 3)
		c := &a.channels[0]
		for _, call := range calls {
			switch call % 4 {
			case 0: // the peer writes a word somewhere into its counters and descriptors
				if len(writes) >= 9 {
					copy(b.memory[int(writes[0])*8%(128+Depth*64-8):], writes[1:9])
					writes = writes[9:]
				}
			case 1:
				if p, _, ok := c.Peek(); ok {
					if len(p) > LeaseBytes {
						t.Fatalf("payload of %d bytes", len(p))
					}
					for i := range p {
						_ = p[i]
					}
					c.Release()
				}
			case 2:
				if space := c.Reserve(int(call) * 600); space != nil {
					clear(space)
					c.Commit(len(space), &someMeta)
				}
			case 3:
				c.Reserve(int(call) * 600)
			}
		}
		c.Close()
		c.Forget()
		if pools[0].Free() != 3 {
			t.Fatalf("%d slots of 3 are left", pools[0].Free())
		}
	})
}

// BenchmarkFragment measures the cost of one fragment without its copies, with both ends on one
// thread.
func BenchmarkFragment(b *testing.B) {
	for _, n := range []int{8, 1000, LeaseBytes} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			x, y, _ := newLink(b, 1, 8)
			from, to := transport.Channel(&x.channels[0]), transport.Channel(&y.channels[0])
			b.ReportAllocs()
			for b.Loop() {
				from.Commit(len(from.Reserve(n)), &someMeta)
				to.Peek()
				to.Release()
			}
		})
	}
}
