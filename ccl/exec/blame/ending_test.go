package blame

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
)

// TestEnds checks when a group has to end, and why.
func TestEnds(t *testing.T) {
	dead := fault.Peer(fault.PeerLost, 1, "it was killed")
	gone := fault.Peer(fault.PeerLeft, 1, "it left")
	mismatch := &fault.Error{Code: fault.Timeout, Seq: 5, Peer: 2, Ranks: []int{2}}
	for what, test := range map[string]struct {
		told   *fault.Error // what a report says
		bereft bool
		scene  Scene
		why    *fault.Error
		death  bool
	}{
		"nothing": {scene: Scene{Begun: true, Seq: 1, Next: 1}},
		"a report of this call": {
			told: mismatch, scene: Scene{Begun: true, Seq: 5, Next: 5}, why: mismatch,
		},
		"a report of a later call":               {told: mismatch, scene: Scene{Begun: true, Seq: 4, Next: 4}},
		"a report of a later call, and messages": {told: mismatch, scene: Scene{Begun: true, Seq: 4}, why: mismatch},
		"a report of a later call, and the peer": {
			told: mismatch, scene: Scene{Begun: true, Seq: 4, Next: 4, Lost: gone}, why: mismatch,
		},
		"it waits for a peer that has left": {scene: Scene{Begun: true, Seq: 1, Next: 1, Lost: gone}, why: gone},
		"it waits for a peer that has died": {
			bereft: true, scene: Scene{Begun: true, Seq: 1, Next: 1, Lost: dead}, death: true,
		},
		"a peer has died, and nothing waits":      {bereft: true, scene: Scene{Next: 1}},
		"something else waits, and nobody died":   {scene: Scene{Next: 1, Mourned: true}},
		"something else waits for one that died":  {bereft: true, scene: Scene{Next: 1, Mourned: true}, death: true},
		"a peer has died, and something moves on": {bereft: true, scene: Scene{Begun: true, Seq: 1, Next: 1}},
	} {
		f := newFake(t, 0, 3)
		f.Ending.told, f.Ending.bereft = test.told, test.bereft
		why, death := f.Ending.Ends(&test.scene, 1)
		require.Equal(t, test.why, why, what)
		require.Equal(t, test.death, death, what)
	}
}

// TestStillness ends a collective that does not move after a death.
func TestStillness(t *testing.T) {
	f := newFake(t, 0, 3)
	require.NotNil(t, f.die(1, 5*ms))
	scene := Scene{Begun: true, Seq: 1, Next: 1}
	ends := func(at int64) bool { _, death := f.Ending.Ends(&scene, at); return death }
	require.False(t, ends(10*ms))
	require.Equal(t, 110*ms, f.Ending.Time(true, 10*ms))
	scene.Moves++
	require.False(t, ends(100*ms))
	require.False(t, ends(199*ms))
	require.True(t, ends(200*ms))
	scene.Seq++
	require.False(t, ends(201*ms), "another collective")
}

// TestReportsArePassedOn hears of a failure from a peer that has left: the first one counts, or
// that of the earliest call, and it is passed on as it is.
func TestReportsArePassedOn(t *testing.T) {
	f := newFake(t, 0, 4)
	leaves := func(peer int, seq uint64, culprit int) []byte {
		why := &fault.Error{Code: fault.Timeout, Seq: seq, Peer: culprit, Ranks: []int{culprit}, Text: "it is late"}
		report := why.Report(peer)
		f.link(peer).err = &fault.Error{Code: fault.PeerLeft, Peer: peer, Left: report}
		require.Nil(t, f.Ending.LinkEnded(peer, f.links.End(peer), 1), "messages end with the group")
		return report
	}
	leaves(1, 7, 3)
	earliest := leaves(2, 6, 1)
	why, _ := f.Ending.Ends(&Scene{Begun: true, Seq: 7, Next: 7}, 2)
	require.Equal(t, []int{1}, ranksOf(why))
	require.Equal(t, uint64(6), f.Ending.Barred().Seq)
	require.Equal(t, 2, f.barred)
	require.Equal(t, earliest, f.Ending.BreakOff(why, nil))
	require.Equal(t, "ff", f.told(3), "those that compute hear it, too")
	require.Equal(t, "f", f.told(2), "of the first")
	require.Empty(t, f.told(1))
}

// TestBar is told by a control message which collectives to refuse. A mismatch bars none.
func TestBar(t *testing.T) {
	f := newFake(t, 0, 3)
	tell := func(code fault.Code, seq uint64) {
		why := &fault.Error{Code: code, Seq: seq, Peer: 2, Ranks: []int{2}}
		f.hear(1, append(head(controlFailed, 0), why.Report(1)...))
		f.Attend(1)
	}
	tell(fault.Mismatch, 3)
	require.Nil(t, f.Ending.Barred())
	tell(fault.Timeout, 9)
	require.Equal(t, uint64(9), f.Ending.Barred().Seq)
	tell(fault.Timeout, 10)
	require.Equal(t, uint64(9), f.Ending.Barred().Seq)
	tell(fault.Timeout, 8)
	require.Equal(t, uint64(8), f.Ending.Barred().Seq)
	own := &fault.Error{Code: fault.Timeout, Seq: 8, Peer: 1}
	told, wrong := fault.ParseReport(f.Ending.BreakOff(own, nil), 0, 3)
	require.NoError(t, wrong)
	require.Equal(t, []int{2}, ranksOf(told), "the failure that it has heard of came first")
}

// TestWhatPeersAreTold checks what a rank says when it leaves.
func TestWhatPeersAreTold(t *testing.T) {
	closed := fault.New(fault.Closed, "the group is closed")
	late := &fault.Error{Code: fault.Timeout, Seq: 4, Peer: 1, Ranks: []int{1}, Text: "it is late"}
	f := newFake(t, 0, 3)
	require.Nil(t, f.Ending.BreakOff(closed, nil))
	f = newFake(t, 0, 3)
	require.True(t, fault.Parted(f.Ending.BreakOff(closed, late)), "a message has failed")
	f = newFake(t, 0, 3)
	require.Equal(t, late.Report(0), f.Ending.BreakOff(late, nil))
	require.Equal(t, 1, f.barred)
}

// TestSeal kills several ranks at once. Whatever each of the others sees, and in whichever order it
// hears of it, all that are left name the same.
func TestSeal(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := 3 + random.IntN(5)
		all := newFakes(t, size)
		dead := random.Perm(size)[:1+random.IntN(size-2)]
		for _, each := range dead {
			all[each] = nil
		}
		ended, at := map[int]*fault.Error{}, int64(1)
		leave := func(f *fake, why *fault.Error) {
			ended[f.rank] = why
			gone := &fault.Error{Code: fault.PeerLeft, Peer: f.rank, Left: f.Ending.BreakOff(why, nil)}
			for _, peer := range all {
				if peer != nil && peer != f {
					peer.link(f.rank).err = gone
				}
			}
		}
		step := func(f *fake) {
			for peer := range size {
				if all[peer] == nil && peer != f.rank && f.link(peer).err == nil && random.IntN(4) == 0 {
					f.link(peer).err = fault.Peer(fault.PeerLost, peer, "it was killed")
				}
				if err := f.links.End(peer); err != nil {
					f.Ending.LinkEnded(peer, err, at)
				}
			}
			why, death := f.Ending.Ends(&Scene{Mourned: true}, at)
			if death {
				why = f.Ending.Settle(true, at)
			}
			if why != nil {
				leave(f, why)
			}
		}
		for ; len(ended) < size-len(dead); at += int64(random.IntN(int(2 * ms))) {
			for rank, f := range all {
				if f != nil && ended[rank] == nil {
					step(f)
				}
			}
			deliver(all, at)
			require.Less(t, at, 300*ms, "nobody has to give up")
		}
		for rank, e := range ended {
			require.Equal(t, slices.Sorted(slices.Values(dead)), ranksOf(e), "seed %d, rank %d", seed, rank)
		}
	}
}

// TestSealLimit does not wait for ever for a rank that does not answer.
func TestSealLimit(t *testing.T) {
	f := newFake(t, 0, 3)
	f.die(1, 1)
	require.Nil(t, f.Ending.Settle(false, 1))
	require.Equal(t, 1+5*ms, f.Ending.Time(false, 1))
	require.Nil(t, f.Ending.Settle(false, 1+5*ms))
	require.Equal(t, 1+300*ms, f.Ending.Time(false, 1+5*ms))
	require.Nil(t, f.Ending.Settle(false, 300*ms))
	e := f.Ending.Settle(false, 1+300*ms)
	require.Equal(t, []int{1}, ranksOf(e))
	require.Same(t, e, f.Ending.Settle(false, 400*ms), "for messages it is settled")
	require.NotEmpty(t, f.told(2))
	f.hear(2, head2(controlWhoIsLost, `{"ranks":[1]}`))
	require.Equal(t, "L", f.told(2), "the group goes on, so it answers")
}

// TestSilentHost counts all ranks of a host as lost if none of them answers.
func TestSilentHost(t *testing.T) {
	f := newFake(t, 0, 4)
	f.opts.Group = topo.OnHosts(0, 0, 1, 1)
	f.link(2).err = &fault.Error{Code: fault.PeerLost, Peer: 2, Silent: true, Text: "its host does not answer"}
	f.Ending.LinkEnded(2, f.links.End(2), 1)
	f.link(3).state.Silent = true
	require.Nil(t, f.Ending.Settle(true, 1))
	require.Equal(t, 1+300*ms, f.Ending.Time(true, 1))
	require.Nil(t, f.Ending.Settle(true, 1+300*ms))
	require.Len(t, f.Losses.Known(), 2)
}

// TestHowALossIsExplained takes over what a rank of the same host has seen of a death.
func TestHowALossIsExplained(t *testing.T) {
	f := newFake(t, 0, 3)
	seen := fault.Peer(fault.PeerLost, 1, "it was ended by signal 9")
	seen.Seen = true
	f.die(1, 1)
	f.hear(2, head2(controlWhoIsLost, `{"ranks":[1],"reports":[`+string(seen.Report(2))+`]}`))
	require.Contains(t, f.Losses.Known()[0].Text, "it was killed; rank 2 reports: it was ended by signal 9")
}

// TestMeanwhile adds to what later calls say who else has been lost.
func TestMeanwhile(t *testing.T) {
	f := newFake(t, 0, 3)
	first := f.die(1, 1)
	f.die(2, 2)
	f.Ending.BreakOff(first, nil)
	require.Equal(t, "it was killed; meanwhile also lost: rank 2", f.Losses.Meanwhile(first).Text)
	closed := fault.New(fault.Closed, "the group is closed")
	require.Same(t, closed, f.Losses.Meanwhile(closed))
	f.hear(2, head2(controlWhoIsLost, `{}`))
	require.NotContains(t, f.told(2), "L", "it has failed, and answers no more")
}

// FuzzHear hands a rank, and the answers that it waits for, what no peer says.
func FuzzHear(f *testing.F) {
	for _, text := range []string{
		"", "q", "q\x01\x00\x00\x00", "a\x01\x00\x00\x00" + `{"seq":3,"op":"x","waits":[0],"busy":true,"idle":4}`,
		"a\x01\x00\x00\x00" + `{"waits":[-1]}`, "f\x00\x00\x00\x00", "l\x01\x00\x00\x00" + `{"ranks":[1,0]}`,
		"L\x00\x00\x00\x00" + `{"ranks":[]}`, "L\x00\x00\x00\x00" + `{"ranks":[0],"reports":[{}]}`,
		"c" + strings.Repeat("\x00", 24), "d" + strings.Repeat("\x01", 23),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		rank := newFake(t, 0, 3)
		rank.Inquiry.Inquire(1)
		rank.hear(1, message)
		rank.Attend(2)
		rank.Inquiry.TimedOut(&Operation{Name: "barrier, seq 1", Seq: 1, Waits: []int{1, 2}})
	})
}

func head2(kind byte, text string) []byte { return append(head(kind, 1), text...) }

// TestLeftMeanwhile has a peer seal and leave after this rank has looked at the links, and before
// it asks: it waits until it has seen what that peer has said.
func TestLeftMeanwhile(t *testing.T) {
	f := newFake(t, 0, 3)
	f.die(1, ms)
	sealed := fault.Peer(fault.PeerLost, 1, "it was killed").Report(2)
	f.link(2).err = &fault.Error{Code: fault.PeerLeft, Peer: 2, Left: sealed}
	require.Nil(t, f.Ending.Settle(true, 2*ms))
	require.Nil(t, f.Ending.Settle(true, 20*ms), "the last question could not be asked, either")
	require.Nil(t, f.Ending.LinkEnded(2, f.links.End(2), 21*ms))
	why, death := f.Ending.Ends(&Scene{Begun: true, Seq: 1, Next: 1}, 21*ms)
	require.False(t, death)
	require.Equal(t, []int{1}, ranksOf(why))
}
