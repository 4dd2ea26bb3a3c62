package blame

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

const ms = int64(1e6)

// TestVerdict checks whom a timeout names, and what it says, for each thing that the others may
// answer. Rank 0 of four asks.
func TestVerdict(t *testing.T) {
	const name = "barrier, seq 5"
	waits := func(rank ...int) Operation {
		return Operation{Name: name, Seq: 5, Waits: rank, Where: make([]string, len(rank)), Else: "it does not end"}
	}
	in := func(seq uint64, op string, waits ...int) *Standing { return &Standing{Seq: seq, Op: op, Waits: waits} }
	for what, test := range map[string]struct {
		op      Operation
		answers [4]*Standing
		left    int // a rank that has left; 0 for none
		told    int // a rank that a report of a later call blames; 0 for none
		ranks   []int
		text    string
	}{
		"one is in no call, at the end of a chain": {
			op: waits(1), answers: [4]*Standing{nil, in(5, name, 2), in(5, name, 3), {Seq: 4, Idle: 1500}},
			ranks: []int{3},
			text:  "rank 3 is in no call since seq 4, 1.5 s ago; rank 0 waits for 1, 1 for 2, 2 for 3",
		},
		"one has made no call yet": {
			op: waits(1), answers: [4]*Standing{nil, {}, in(5, name, 1), in(5, name, 1)}, ranks: []int{1},
			text: "rank 1 is in no call, and has not made one yet; rank 0 waits for 1",
		},
		"nobody knows since when": {
			op: waits(1), answers: [4]*Standing{nil, {Seq: 4}, in(5, name, 1), in(5, name, 1)}, ranks: []int{1},
			text: "rank 1 is in no call since seq 4; rank 0 waits for 1",
		},
		"one does not answer": {
			op: waits(1), answers: [4]*Standing{nil, in(5, name, 2), nil, in(5, name, 0)}, ranks: []int{2},
			text: "rank 2 does not answer; its process may be stopped, or its host cut off; rank 0 waits for 1, 1 for 2",
		},
		"one has left and cannot answer": {
			op: waits(1), answers: [4]*Standing{nil, in(5, name, 2), nil, in(5, name, 2)}, left: 2, ranks: []int{1},
			text: "rank 0 waits for 1; all of them are in the same call",
		},
		"one is silent, and the others have given up because of another one": {
			op: waits(3), answers: [4]*Standing{nil, in(6, "barrier, seq 6", 3), nil, {Seq: 4, Idle: 500}}, told: 3,
			ranks: []int{3}, text: "rank 3 is in no call since seq 4, 0.5 s ago; rank 0 waits for 3",
		},
		"one is silent, and the others have given up because of it": {
			op: waits(2), answers: [4]*Standing{nil, in(6, "barrier, seq 6", 2), nil, in(6, "barrier, seq 6", 2)},
			told: 2, ranks: []int{2},
			text: "rank 2 does not answer; its process may be stopped, or its host cut off; rank 0 waits for 2",
		},
		"one is at work": {
			op: waits(1), answers: [4]*Standing{nil, {Seq: 5, Busy: true}, in(5, name, 1), in(5, name, 1)},
			ranks: []int{1}, text: "rank 0 waits for 1",
		},
		"one has done its part": {
			op: waits(1), answers: [4]*Standing{nil, in(5, name, 0), {Seq: 6, Idle: 7}, in(5, name, 0)},
			ranks: []int{1}, text: "rank 0 waits for 1; all of them are in the same call",
		},
		"some wait in an earlier call": {
			op: waits(1), answers: [4]*Standing{nil, in(4, "barrier, seq 4", 2), in(5, name, 0), in(5, name, 0)},
			ranks: []int{1, 2}, text: "rank 1 waits in barrier, seq 4; rank 0 waits for 1, 1 for 2, 2 for 0",
		},
		"a message waits for one that waits elsewhere": {
			op: Operation{Kind: Message, Name: "recv, seq 1", Peer: 1, Waits: []int{1},
				Where: []string{"the message has not come"}},
			answers: [4]*Standing{nil, in(9, "recv, seq 7", 2), in(9, "recv, seq 8", 1), {}},
			ranks:   []int{1, 2},
			text: "rank 1 waits in recv, seq 7; rank 2 waits in recv, seq 8; " +
				"rank 0 waits for 1 (the message has not come), 1 for 2, 2 for 1",
		},
		"a message from anybody": {
			op:      Operation{Kind: Message, Name: "recv, seq 1", Peer: -1, Else: "no such message has come from any rank"},
			answers: [4]*Standing{nil, {}, {}, {}}, text: "no such message has come from any rank",
		},
		"lengths are exchanged": {
			op:      Operation{Name: name, Seq: 5, Else: "it does not end", Exchange: "the lengths of blocks"},
			answers: [4]*Standing{nil, in(5, name), in(5, name), in(5, name)},
			text:    "it does not end, while the lengths of blocks were exchanged",
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFake(t, 0, 4)
			f.awaited = test.op.Waits
			if test.left > 0 {
				f.link(test.left).err = fault.Peer(fault.PeerLeft, test.left, "it left")
				require.Error(t, f.links.End(test.left))
			}
			if test.told > 0 {
				f.Ending.told = &fault.Error{Code: fault.Timeout, Seq: 6, Peer: test.told, Ranks: []int{test.told}}
			}
			require.False(t, f.Inquiry.Inquire(1))
			for peer, answer := range test.answers {
				if answer != nil {
					f.Inquiry.hearAnswer(peer, 1, encodeStanding(answer))
				}
			}
			require.True(t, f.Inquiry.Inquire(1+400*ms))
			e := f.Inquiry.TimedOut(&test.op)
			require.Equal(t, fault.Timeout, e.Code)
			require.Equal(t, test.text, e.Text)
			require.Equal(t, test.ranks, ranksOf(e))
		})
	}
}

// TestVerdictOfManyStranded checks that an error names a bounded number of ranks.
func TestVerdictOfManyStranded(t *testing.T) {
	f := newFake(t, 0, 20)
	f.Inquiry.Inquire(1)
	for peer := range 20 {
		s := Standing{Seq: 4, Op: "barrier, seq 4", Waits: []int{(peer + 1) % 20}}
		f.Inquiry.hearAnswer(peer, 1, encodeStanding(&s))
	}
	f.Attend(2)
	require.True(t, f.Inquiry.Inquire(2))
	e := f.Inquiry.TimedOut(&Operation{Name: "barrier, seq 5", Seq: 5, Waits: []int{1}})
	require.Contains(t, e.Text, "rank 8 waits in barrier, seq 4; so do 11 more; rank 0 waits for 1, 1 for 2")
	require.Contains(t, e.Text, ", and 12 more")
}

// TestVerdictWithoutAnInquiry is of a rank that cannot ask, or has not yet.
func TestVerdictWithoutAnInquiry(t *testing.T) {
	f := newFake(t, 0, 4)
	op := Operation{Kind: Keyed, Name: "barrier, key 7", Waits: []int{1, 3},
		Where: []string{"nothing of this call has come", ""}}
	want := "rank 0 waits for 1 (nothing of this call has come), 0 for 3; ranks 1, 3 may be late, or in another call"
	for range 2 {
		e := f.Inquiry.TimedOut(&op)
		require.Equal(t, []int{1, 3}, ranksOf(e))
		require.Equal(t, want, e.Text)
		f.opts.Control = nil
		require.True(t, f.Inquiry.Inquire(1), "there is nobody to ask")
	}
}

// TestInquiry follows one from its questions to its end, and to when it serves no longer.
func TestInquiry(t *testing.T) {
	f := newFake(t, 1, 3)
	q := &f.Inquiry
	require.False(t, q.Inquire(10*ms))
	require.Equal(t, 410*ms, q.Until())
	require.Equal(t, "q", f.told(0))
	require.Equal(t, "q", f.told(2))
	require.False(t, q.Inquire(11*ms))
	require.Empty(t, f.told(0), "each is asked once")
	f.hear(0, append(head(controlAnswer, 1), encodeStanding(&Standing{Seq: 3, Busy: true})...))
	f.hear(2, append(head(controlAnswer, 1), encodeStanding(&Standing{Seq: 3, Op: "barrier, seq 3"})...))
	f.hear(2, append(head(controlAnswer, 1), encodeStanding(&Standing{Seq: 3, Busy: true})...))
	f.hear(0, append(head(controlAnswer, 9), encodeStanding(&Standing{Seq: 3})...))
	attended, found := f.Attend(12 * ms)
	require.True(t, attended)
	require.Nil(t, found)
	require.False(t, q.Inquire(12*ms), "the driver of rank 0 has not answered")
	f.hear(0, append(head(controlAnswer, 1), encodeStanding(&Standing{Seq: 3, Op: "reduce, seq 3"})...))
	require.True(t, q.Inquire(13*ms))
	require.Zero(t, q.Until())
	require.Equal(t, "barrier, seq 3", q.answers[2].Op, "it has not become busy again")
	require.True(t, q.Inquire(1410*ms-1), "it serves other operations, too")
	q.Outdate(10 * ms)
	require.True(t, q.Inquire(1410*ms-1))
	require.False(t, q.Inquire(1410*ms), "a second after it might have ended")
	q.over = true
	q.Outdate(1411 * ms)
	require.False(t, q.Inquire(1412*ms), "it was about an earlier operation")
	require.Equal(t, uint32(3), q.number)
}

// TestInquiryOfALargeGroup asks only the ranks on the chains.
func TestInquiryOfALargeGroup(t *testing.T) {
	f := newFake(t, 0, mostAsked+1)
	f.awaited = []int{7}
	require.False(t, f.Inquiry.Inquire(1))
	require.Equal(t, []int{7}, f.Inquiry.asked)
	f.hear(7, append(head(controlAnswer, 1), encodeStanding(&Standing{Op: "barrier, seq 1", Waits: []int{9, 0}})...))
	f.Attend(2)
	require.Equal(t, []int{7, 9}, f.Inquiry.asked)
	f.hear(9, append(head(controlAnswer, 1), encodeStanding(&Standing{})...))
	f.Attend(3)
	require.True(t, f.Inquiry.Inquire(3))
}

// TestAnswers checks what a rank answers, and when: at once from any thread, and once more by its
// driver if that knows more.
func TestAnswers(t *testing.T) {
	f := newFake(t, 0, 2)
	f.outside = Standing{Seq: 4, Idle: 17}
	f.hear(1, head(controlQuestion, 3))
	require.Equal(t, []string{"a\x03\x00\x00\x00" + `{"seq":4,"idle":17}`}, texts(f.link(1).box))
	f.Attend(1)
	require.Equal(t, "a", f.told(1))
	f.outside, f.standing = Standing{Seq: 4, Busy: true}, Standing{Seq: 4, Op: "barrier, seq 4", Waits: []int{1}}
	for range 5 {
		f.hear(1, head(controlQuestion, 4))
	}
	require.Equal(t, "aaaaa", f.told(1))
	f.Attend(2)
	require.Equal(t, []string{
		"a\x04\x00\x00\x00" + `{"seq":4,"op":"barrier, seq 4","waits":[1]}`,
		"a\x04\x00\x00\x00" + `{"seq":4,"op":"barrier, seq 4","waits":[1]}`,
	}, texts(f.link(1).box), "one that asks too often is answered less often")
}

// TestOtherThreads has threads want to know what the driver knows.
func TestOtherThreads(t *testing.T) {
	f := newFake(t, 0, 2)
	f.standing = Standing{Seq: 2, Op: "barrier, seq 2"}
	told, leave := f.Inquiry.Ask()
	other, _ := f.Inquiry.Ask()
	require.Nil(t, other, "one at a time")
	f.Wake()
	f.Attend(1)
	require.Equal(t, f.standing, <-told)
	leave()
	f.inFlight = &Operation{Name: "barrier, seq 2", Seq: 2, Waits: []int{1}}
	found, forget := f.Inquiry.Want(100, false)
	none, _ := f.Inquiry.Want(100, false)
	require.Nil(t, none)
	f.Wake()
	f.Attend(1)
	require.Empty(t, found)
	f.Wake()
	f.Attend(101)
	require.Equal(t, Outcome{
		Text: "barrier, seq 2 had not ended: rank 1 does not answer; " +
			"its process may be stopped, or its host cut off; rank 0 waits for 1",
		Silent: true,
	}, <-found)
	forget()
	again, forget := f.Inquiry.Want(100, false)
	require.NotNil(t, again)
	forget()
}

// TestWarning warns again after twice the time, and not before the others were asked.
func TestWarning(t *testing.T) {
	f := newFake(t, 0, 2)
	var lines []string
	f.opts.Warn = func(format string, args ...any) { lines = append(lines, format) }
	f.Asking.patience = 100 * ms
	f.inFlight = &Operation{Name: "barrier, seq 2", Seq: 2, Waits: []int{1}}
	ask, warn := f.Asking.Times(2, 1)
	require.Equal(t, [2]int64{1 + 50*ms, 1 + 100*ms}, [2]int64{ask, warn})
	f.Asking.Asked[1] = true
	f.Asking.Again(1 + 50*ms)
	ask, _ = f.Asking.Times(2, 1+50*ms)
	require.Equal(t, 1+150*ms, ask)
	f.Warn(1 + 100*ms)
	require.Empty(t, lines, "the inquiry has only begun")
	f.Warn(1 + 500*ms)
	require.Len(t, lines, 1)
	_, warn = f.Asking.Times(2, 1+500*ms)
	require.Equal(t, 1+200*ms, warn)
	f.Asking.Times(3, 1+600*ms)
	require.False(t, f.Asking.Asked[1], "another operation")
}
