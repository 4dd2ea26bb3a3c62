package blame

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/fault"
)

// made has a rank make a broadcast with some elements, which ends without the others.
func (f *fake) made(seq uint32, count int) fingerprint.Fields {
	print := fingerprint.Fields{Seq: seq, Coll: dtype.Broadcast, Type: dtype.F32, Count: count, Phase: 1}
	f.calls.Add(print.Meta(0)[0], print.What(), print.Digest(), uint64(count), print.Meets())
	return print
}

// TestComparison compares the calls of two ranks, as control messages bring them.
func TestComparison(t *testing.T) {
	for what, test := range map[string]struct {
		mine, theirs []int // lengths of their calls
		text         string
	}{
		"same":              {[]int{1, 2, 3}, []int{1, 2, 3}, ""},
		"one is ahead":      {[]int{1, 2}, []int{1, 2, 9}, ""},
		"none yet":          {nil, []int{1}, ""},
		"the last":          {[]int{1, 2, 3}, []int{1, 2, 4}, "this rank called broadcast seq 3, 3 x f32, root 0, rank 1 called broadcast seq 3, 4 x f32, root 0"},
		"an earlier one":    {[]int{1, 2, 3}, []int{1, 7, 3}, "this rank called broadcast seq 2, 2 x f32, root 0, rank 1 called broadcast seq 2, 7 x f32, root 0"},
		"one long ago":      {[]int{1, 2, 3, 4, 5, 6, 7, 8, 9}, []int{9, 2, 3, 4, 5, 6, 7, 8, 9}, "this rank and the peer made different calls, more than the last few ago"},
		"nothing in common": {[]int{1}, []int{2, 2, 2, 2, 2, 2, 2, 2, 2}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			f, peer := newFake(t, 0, 2), newFake(t, 1, 2)
			for i, n := range test.mine {
				f.made(uint32(i+1), n)
			}
			for i, n := range test.theirs {
				peer.made(uint32(i+1), n)
			}
			f.hear(1, peer.Comparison.Answer())
			_, found := f.Attend(1)
			if test.text == "" {
				require.Nil(t, found)
				return
			}
			require.Equal(t, fault.Mismatch, found.Code)
			require.Contains(t, found.Text, test.text)
			require.NotEmpty(t, found.Proof)
		})
	}
}

// TestTheCallInFlightCounts compares a call that has not ended.
func TestTheCallInFlightCounts(t *testing.T) {
	f, peer := newFake(t, 0, 2), newFake(t, 1, 2)
	print := peer.made(1, 5)
	f.call = &Call{Head: print.Meta(0)[0], What: 6}
	f.call.After.Add(1)
	f.hear(1, peer.Comparison.Answer())
	_, found := f.Attend(1)
	require.ErrorContains(t, found, "broadcast seq 1, 6 x f32, root 0, rank 1 called broadcast seq 1, 5 x f32")
}

// TestConfirm follows what a rank does before it leaves.
func TestConfirm(t *testing.T) {
	all := newFakes(t, 3)
	for _, f := range all[:2] {
		f.made(1, 5)
	}
	x := &all[0].Comparison
	confirm := func(late bool, t int64) bool { over, _ := x.Confirm(late, t); return over }
	require.True(t, all[0].calls.Unmet)
	require.False(t, confirm(true, 1))
	deliver(all, 1)
	require.False(t, confirm(true, 2), "rank 2 has not made the call")
	require.Empty(t, all[0].told(2), "it was asked just now")
	require.False(t, confirm(true, 1+ms))
	require.Equal(t, "c", all[0].told(2))
	require.Empty(t, all[0].told(1), "its answer has come")
	all[2].made(1, 5)
	all[0].hear(2, all[2].Comparison.Answer())
	require.True(t, confirm(true, 3*ms))
	require.False(t, all[0].calls.Unmet)

	t.Run("not for those that are late", func(t *testing.T) {
		all := newFakes(t, 2)
		all[0].made(1, 5)
		x = &all[0].Comparison
		require.False(t, confirm(false, 1))
		deliver(all, 1)
		require.True(t, confirm(false, 2))
	})
	t.Run("nor long for those that do not answer", func(t *testing.T) {
		f := newFake(t, 0, 2)
		f.made(1, 5)
		x = &f.Comparison
		require.False(t, confirm(true, 1))
		require.False(t, confirm(true, 300*ms))
		require.True(t, confirm(true, 301*ms))
	})
	t.Run("nor more than a second for any", func(t *testing.T) {
		all := newFakes(t, 2)
		all[0].made(1, 5)
		x = &all[0].Comparison
		for at := int64(1); at < 1000*ms; at += 100 * ms {
			require.False(t, confirm(true, at))
			deliver(all, at)
		}
		require.True(t, confirm(true, 1001*ms))
	})
	t.Run("not at all for those that have left", func(t *testing.T) {
		f := newFake(t, 0, 2)
		f.made(1, 5)
		x = &f.Comparison
		f.link(1).err = fault.Peer(fault.PeerLeft, 1, "it left")
		require.False(t, confirm(true, 1), "the driver has not looked what it said")
		f.links.End(1)
		require.True(t, confirm(true, 2))
	})
	t.Run("a difference", func(t *testing.T) {
		all := newFakes(t, 2)
		all[0].made(1, 5)
		all[1].made(1, 6)
		all[0].hear(1, all[1].Comparison.Answer())
		over, found := all[0].Comparison.Confirm(true, 1)
		require.True(t, over)
		require.ErrorIs(t, found, fault.Mismatch)
	})
}

// TestWitness has three ranks hear the report of a mismatch that rank 1 has found, of rank 2: those
// that have called what rank 1 has name rank 2, and the others rank 1.
func TestWitness(t *testing.T) {
	finder, odd := newFake(t, 1, 4), newFake(t, 2, 4)
	for seq := range uint32(3) {
		finder.made(seq+1, 5)
		odd.made(seq+1, 5)
	}
	mine := finder.made(4, 5)
	other := odd.made(4, 6)
	err := finder.Mismatch(2, other.Meta(0), mine.Meta(0), 0).(*fault.Error)
	require.Contains(t, err.Text,
		"this rank called broadcast seq 4, 5 x f32, root 0, rank 2 called broadcast seq 4, 6 x f32, root 0; all ranks")
	report := err.Report(1)
	for length, want := range map[int]int{5: 2, 6: 1, 0: 2} {
		f := newFake(t, 3, 4)
		for seq := range uint32(3) {
			f.made(seq+1, 5)
		}
		if length > 0 { // else it has not come so far
			f.made(4, length)
		}
		told := f.Ending.parse(1, report)
		require.Equal(t, []int{want}, ranksOf(told), "length %d", length)
	}
}

// TestMismatchOfAnEarlierCall asks the peer when its fragment shows only that something before was
// different.
func TestMismatchOfAnEarlierCall(t *testing.T) {
	f, peer := newFake(t, 0, 2), newFake(t, 1, 2)
	f.made(1, 5)
	peer.made(1, 6)
	mine, theirs := f.made(2, 7), peer.made(2, 7)
	mine.Hash, theirs.Hash = 1, 2
	f.hear(1, peer.Comparison.Answer())
	err := f.Mismatch(1, theirs.Meta(28), mine.Meta(28), 28)
	require.ErrorContains(t, err, "broadcast seq 1, 5 x f32, root 0, rank 1 called broadcast seq 1, 6 x f32, root 0; "+
		"they find out only now")
	require.Equal(t, "c", f.told(1), "it is told in any case")
	same := f.Mismatch(1, mine.Meta(28), mine.Meta(28), 28)
	require.ErrorIs(t, same, fault.Internal)
}
