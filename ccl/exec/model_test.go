//go:build !race

package exec

import (
	"flag"
	"slices"
	"testing"
)

// The model checks the rules in doc.go and the hand-over of comm.go, driver.go, wait.go and
// progress.go over all interleavings: it is a model in which every atomic operation is one step
// (model_steps_test.go), and a breadth-first search through all its states. The search checks that
//
//   - every run can still come to its end: no thread sleeps for ever, and no state is a trap;
//   - whenever all threads sleep, there is nothing that they could do: a peer may be slow, this
//     process may not. The nap of the progress thread does not count as such a sleep, except for
//     Comms with urgent operations;
//   - a Comm never has two drivers, nor two operations in one frame;
//   - a thread whose wait was cancelled, or whose operation has ended, does not sleep.
//
// TestModelIsOfTheCode holds the model to the code: each step is one access there, and each access
// is one step, or a comment says why it is none.
//
// Functions of OnEnd are called within the step endState, and only tell others what the state says.
//
// The model leaves out spinning (a thread may sleep at once, the worst case), the data that only
// the lock's holder accesses (it is part of the step before), deadlines, broken links, pollers,
// GOMAXPROCS, and the end of the progress thread. Which Comms the progress thread finds attended is
// arbitrary, and so is whether it naps or sleeps; a nap may end at any time. Words that only count
// (rings, notified, expedited, count) are modelled by what threads can see of them: whether a value
// that some thread keeps is still the newest. Peers are threads that publish one event after
// another, each followed by Doorbell.Ring.
//
// A mutation changes the order of some steps or leaves one out. The search must find each mutation
// in the scenario named with it, which shows that the search sees such faults and that the step is
// needed.

var scenarios = []scenario{
	{name: "run", comms: []int{0}, ops: []opSpec{{}}, users: []user{{0, []action{run(0)}}}},
	{name: "post, never wait", fresh: true, comms: []int{0}, ops: []opSpec{{}}, users: []user{{0, []action{post(0)}}}},
	{name: "post, wait", comms: []int{0}, ops: []opSpec{{}}, users: []user{{0, []action{post(0), wait(0)}}}},
	{name: "wait in reverse order", comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), post(1), wait(1), wait(0)}}}},
	{name: "two threads run", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{run(1)}}}},
	{name: "one runs, one posts", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{post(1)}}}},
	{name: "one posts, one is wrong", comms: []int{0}, ops: []opSpec{{}, {wrong: true, unknown: true}},
		users: []user{{0, []action{post(0)}}, {0, []action{run(1)}}}},
	{name: "two threads post", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0)}}, {0, []action{post(1)}}}},
	{name: "two threads post, step by step", large: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0)}}, {0, []action{post(1)}}}},
	{name: "two threads post three", coarse: true, queue: true, comms: []int{0}, ops: []opSpec{{}, {}, {}},
		users: []user{{0, []action{post(0), post(1)}}, {0, []action{post(2)}}}},
	{name: "posts to two Comms", coarse: true, queue: true, comms: []int{0, 0},
		ops:   []opSpec{{comm: 0}, {comm: 1}, {comm: 1}},
		users: []user{{0, []action{post(0), post(1)}}, {0, []action{post(2)}}}},
	{name: "two threads post and wait", coarse: true, large: true, queue: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), wait(0)}}, {0, []action{post(1), wait(1)}}}},
	{name: "another thread waits", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), run(1)}}, {0, []action{wait(0)}}}},
	{name: "three threads run", coarse: true, queue: true, large: true, alone: [maxRanks]bool{true},
		comms: []int{0}, ops: []opSpec{{}, {}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{run(1)}}, {0, []action{run(2)}}}},
	{name: "two run, one posts and waits", coarse: true, queue: true, large: true, alone: [maxRanks]bool{true},
		comms: []int{0}, ops: []opSpec{{}, {}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{run(1)}}, {0, []action{post(2), wait(2)}}}},
	{name: "fragments", coarse: true, comms: []int{0}, ops: []opSpec{{fragments: 2}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{post(1)}}}},
	{name: "two Comms, two threads", coarse: true, queue: true, large: true, comms: []int{0, 0},
		ops:   []opSpec{{comm: 0}, {comm: 1}, {comm: 1}},
		users: []user{{0, []action{post(1), run(0)}}, {0, []action{run(2)}}}},
	// a: A.sync, b: B.async. The peer does B.async, B.wait, A.sync, so that A needs what this rank
	// sends for B.
	{name: "B.async A.sync B.wait", comms: []int{0, 0}, ops: []opSpec{{comm: 0, needs: []int{1}}, {comm: 1}},
		users: []user{{0, []action{post(1), run(0), wait(1)}}}},
	{name: "B.async B.wait A.sync", comms: []int{0, 0}, ops: []opSpec{{comm: 0}, {comm: 1}},
		users: []user{{0, []action{post(1), wait(1), run(0)}}}},
	// a, b: A and B of rank 0; c, d: those of rank 1.
	{name: "both ranks", coarse: true, large: true, comms: []int{0, 0, 1, 1}, alone: [maxRanks]bool{1: true},
		ops: []opSpec{{comm: 0, needs: []int{2}}, {comm: 1, needs: []int{3}},
			{comm: 2, needs: []int{0}}, {comm: 3, needs: []int{1}}},
		users: []user{{0, []action{post(1), run(0), wait(1)}}, {1, []action{post(3), wait(3), run(2)}}}},
	// a: a receive whose sender first needs what b sends.
	{name: "receive and send", coarse: true, comms: []int{0},
		ops:   []opSpec{{message: true, needs: []int{1}}, {message: true}},
		users: []user{{0, []action{run(0)}}, {0, []action{run(1)}}}},
	{name: "receive and collective", coarse: true, comms: []int{0}, ops: []opSpec{{message: true, needs: []int{1}}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{run(1)}}}},
	{name: "receive and posted collective", coarse: true, comms: []int{0},
		ops:   []opSpec{{message: true, needs: []int{1}}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{post(1)}}}},
	// b: a message that this rank must read before its peer joins in a.
	{name: "unasked message, run", comms: []int{0}, ops: []opSpec{{needs: []int{1}}, {unasked: true}},
		users: []user{{0, []action{run(0)}}}},
	{name: "unasked message, post", comms: []int{0}, ops: []opSpec{{needs: []int{1}}, {unasked: true}},
		users: []user{{0, []action{post(0)}}}},
	{name: "cancel", comms: []int{0}, ops: []opSpec{{cancel: true}},
		users: []user{{0, []action{post(0), wait(0)}}, {0, []action{cancel(0)}}}},
	{name: "cancel of two", coarse: true, large: true, comms: []int{0}, ops: []opSpec{{cancel: true}, {}},
		users: []user{{0, []action{post(0), wait(0)}}, {0, []action{run(1), cancel(0)}}}},
	{name: "cancel while another drives", coarse: true, large: true, comms: []int{0}, ops: []opSpec{{cancel: true}, {}},
		users: []user{{0, []action{post(0), wait(0)}}, {0, []action{run(1)}}, {0, []action{cancel(0)}}}},
	{name: "cancel, then run", coarse: true, comms: []int{0}, ops: []opSpec{{cancel: true}, {}},
		users: []user{{0, []action{post(0), wait(0), run(1)}}, {0, []action{cancel(0)}}}},
	{name: "abort", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}}, silent: true,
		users: []user{{0, []action{run(0)}}, {0, []action{post(1)}}, {0, []action{abort(0)}}}},
	{name: "close", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}}, silent: true,
		users: []user{{0, []action{post(0)}}, {0, []action{post(1)}}, {0, []action{closing(0)}}}},
	{name: "abort while events come", coarse: true, large: true, alone: [maxRanks]bool{true},
		comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), wait(0)}}, {0, []action{run(1)}}, {0, []action{abort(0)}}}},
	{name: "post, expedite, never wait", fresh: true, comms: []int{0}, ops: []opSpec{{}},
		users: []user{{0, []action{post(0), expedite(0)}}}},
	{name: "another thread expedites", comms: []int{0}, ops: []opSpec{{}},
		users: []user{{0, []action{post(0)}}, {0, []action{expedite(0)}}}},
	{name: "post, expedite, wait", comms: []int{0}, ops: []opSpec{{}},
		users: []user{{0, []action{post(0), expedite(0), wait(0)}}}},
	{name: "one posts and expedites, one runs", coarse: true, queue: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), expedite(0)}}, {0, []action{run(1)}}}},
	{name: "one expedites, one posts and waits", coarse: true, large: true, queue: true, comms: []int{0},
		ops:   []opSpec{{}, {}},
		users: []user{{0, []action{post(0), expedite(0)}}, {0, []action{post(1), wait(1)}}}},
	{name: "two Comms, one expedited", coarse: true, comms: []int{0, 0}, ops: []opSpec{{comm: 0}, {comm: 1}},
		users: []user{{0, []action{post(0), post(1), expedite(0)}}}},
	{name: "post, poll", comms: []int{0}, ops: []opSpec{{}}, users: []user{{0, []action{post(0), poll(0), poll(0)}}}},
	{name: "one polls, one runs", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), poll(0)}}, {0, []action{run(1)}}}},
	// Calls that have a kept program: Post tries them at once, and counts them as pending only if
	// they have not ended.
	{name: "known, never wait", fresh: true, comms: []int{0}, ops: []opSpec{{}}, users: []user{{0, []action{post(0)}}}},
	{name: "no program, wait", comms: []int{0}, ops: []opSpec{{unknown: true}},
		users: []user{{0, []action{post(0), wait(0)}}}},
	{name: "known, wait in reverse order", comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), post(1), wait(1), wait(0)}}}},
	{name: "two threads post known calls", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0)}}, {0, []action{post(1)}}}},
	{name: "one posts a known call, one runs", coarse: true, queue: true, comms: []int{0}, ops: []opSpec{{}, {}},
		users: []user{{0, []action{post(0), wait(0)}}, {0, []action{run(1)}}}},
	{name: "one posts a known call, one posts", coarse: true, comms: []int{0}, ops: []opSpec{{}, {unknown: true}},
		users: []user{{0, []action{post(0)}}, {0, []action{post(1)}}}},
	{name: "known, receive", coarse: true, comms: []int{0}, ops: []opSpec{{message: true, needs: []int{1}}, {}},
		users: []user{{0, []action{run(0)}}, {0, []action{post(1)}}}},
	{name: "known, expedite", comms: []int{0}, ops: []opSpec{{}}, users: []user{{0, []action{post(0), expedite(0)}}}},
	{name: "abort of a known call", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}}, silent: true,
		users: []user{{0, []action{post(0)}}, {0, []action{post(1), wait(1)}}, {0, []action{abort(0)}}}},
	{name: "cancel of a known call", comms: []int{0}, ops: []opSpec{{cancel: true}},
		users: []user{{0, []action{post(0), wait(0)}}, {0, []action{cancel(0)}}}},
	// Run and Wait in slices: they may return at any time, and then the operation is as if posted.
	{name: "run in slices", comms: []int{0}, ops: []opSpec{{slices: true}}, users: []user{{0, []action{run(0)}}}},
	{name: "run in slices, wait", comms: []int{0}, ops: []opSpec{{slices: true}},
		users: []user{{0, []action{run(0), wait(0), wait(0)}}}},
	{name: "run in slices, wait, no program", comms: []int{0}, ops: []opSpec{{slices: true, unknown: true}},
		users: []user{{0, []action{run(0), wait(0)}}}},
	{name: "post, wait in slices", comms: []int{0}, ops: []opSpec{{slices: true}},
		users: []user{{0, []action{post(0), wait(0), wait(0)}}}},
	{name: "run in slices, expedite", comms: []int{0}, ops: []opSpec{{slices: true}},
		users: []user{{0, []action{run(0), expedite(0)}}}},
	{name: "run in slices, poll", comms: []int{0}, ops: []opSpec{{slices: true}},
		users: []user{{0, []action{run(0), poll(0)}}}},
	{name: "run in slices, watched", coarse: true, watch: true, comms: []int{0}, ops: []opSpec{{slices: true}},
		users: []user{{0, []action{run(0)}}}},
	{name: "one runs in slices, one runs", coarse: true, large: true, queue: true, comms: []int{0},
		ops:   []opSpec{{slices: true}, {}},
		users: []user{{0, []action{run(0), wait(0)}}, {0, []action{run(1)}}}},
	{name: "two run in slices", coarse: true, large: true, queue: true, comms: []int{0},
		ops:   []opSpec{{slices: true}, {slices: true}},
		users: []user{{0, []action{run(0)}}, {0, []action{run(1)}}}},
	{name: "one runs in slices, one posts", coarse: true, queue: true, comms: []int{0},
		ops:   []opSpec{{slices: true}, {}},
		users: []user{{0, []action{run(0), wait(0)}}, {0, []action{post(1)}}}},
	{name: "run in slices, run", comms: []int{0}, ops: []opSpec{{slices: true}, {}}, queue: true,
		users: []user{{0, []action{run(0), run(1), wait(0)}}}},
	{name: "receive in slices and send", coarse: true, large: true, comms: []int{0},
		ops:   []opSpec{{message: true, needs: []int{1}, slices: true}, {message: true}},
		users: []user{{0, []action{run(0), wait(0)}}, {0, []action{run(1)}}}},
	{name: "abort of a run in slices", coarse: true, large: true, comms: []int{0}, silent: true,
		ops:   []opSpec{{slices: true}, {}},
		users: []user{{0, []action{run(0), wait(0)}}, {0, []action{post(1)}}, {0, []action{abort(0)}}}},
	{name: "known calls watched", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}}, watch: true,
		users: []user{{0, []action{post(0)}}, {0, []action{post(1)}}}},
	{name: "watcher", coarse: true, comms: []int{0}, ops: []opSpec{{}, {}}, watch: true,
		users: []user{{0, []action{post(0)}}, {0, []action{post(1)}}}},
}

var full = flag.Bool("model.full", false, "search the models with millions of states, too")

func TestModel(t *testing.T) {
	g := newGraph()
	for i := range scenarios {
		sc := &scenarios[i]
		if sc.large && !*full {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			states, wrong := g.check(sc, &mutation{})
			t.Logf("%d states", states)
			if wrong != "" {
				t.Fatal(wrong)
			}
		})
	}
}

var mutations = []mutation{
	{name: "who leaves Wait does not hand over", in: "one runs, one posts",
		rewire: map[edge]place{{0, waitHand}: nextAction}},
	{name: "Wait hands over before it is counted out", in: "one runs, one posts",
		rewire: map[edge]place{{0, waitLeave}: handThenLeave}},
	{name: "Post does not hand over", in: "post, never wait", rewire: map[edge]place{{0, postHand}: nextAction}},
	{name: "Post does not ring when the lock is held", in: "two threads post, step by step",
		rewire: map[edge]place{{postAgain, ringLook}: back}},
	{name: "Run does not ring when the lock is held", in: "receive and send",
		rewire: map[edge]place{{runRing, ringLook}: back}},
	{name: "Run does not ring when the lock is held", in: "receive and collective",
		rewire: map[edge]place{{runRing, ringLook}: back}},
	{name: "Run does not hand over after a known call", in: "one runs, one posts",
		rewire: map[edge]place{{runAfter, postHand}: nextAction}},
	{name: "Run does not look at pending again, with the lock", in: "one runs, one posts",
		rewire: map[edge]place{{runLock, runAgain}: runBlind}},
	{name: "a call that is wrong does not hand over", in: "one posts, one is wrong",
		rewire: map[edge]place{{0, lockedInVain}: callAllowed}},
	{name: "a driver does not look again after Doorbell.Prepare", in: "run",
		rewire: map[edge]place{{ticket, advance}: back}},
	{name: "progress does not look again after Doorbell.Prepare", in: "post, never wait",
		rewire: map[edge]place{{ticket, passComms}: sleep}},
	{name: "awaitTurn does not look again at the lock", in: "two threads run",
		rewire: map[edge]place{{overState, turnLock}: sleep}},
	{name: "awaitTurn does not look again at its operation", in: "two threads run",
		rewire: map[edge]place{{ticket, overState}: back}},
	{name: "awaitTurn does not look at its Cancel", in: "cancel while another drives",
		rewire: map[edge]place{{overState, overCancel}: back}},
	{name: "Nudge does not ring those that await their turn", in: "cancel while another drives",
		rewire: map[edge]place{{0, nudgeTurns}: nextAction}},
	{name: "handOver does not look for sleepers", in: "two threads run",
		rewire: map[edge]place{{handLock, handTurns}: handWaiting}},
	{name: "handOver does not notify", in: "post, never wait",
		rewire: map[edge]place{{handWaiting, notifyComms}: back}},
	{name: "notify does not count", in: "post, never wait", rewire: map[edge]place{{0, notifyWord}: notifyIdle}},
	{name: "notify does not ring who sleeps for good", in: "post, never wait",
		rewire: map[edge]place{{notifyWord, ringLook}: back}},
	{name: "notify does not look who sleeps on the doorbell", in: "posts to two Comms",
		rewire: map[edge]place{{0, notifyDoorbell}: back}},
	{name: "progress does not look at word before it sleeps for good", in: "post, never wait",
		rewire: map[edge]place{{ticket, idleWord}: sleep}},
	{name: "progress does not say that it sleeps on the doorbell", in: "posts to two Comms",
		rewire: map[edge]place{{0, doorbellSay}: doorbellQuiet}},
	{name: "Expedite does not hand over", in: "another thread expedites",
		rewire: map[edge]place{{0, expediteHand}: nextAction}},
	{name: "Expedite hands over before it counts", in: "another thread expedites",
		rewire: map[edge]place{
			{expediteMark, expediteCount}: handThenUrgent, {expediteCount, expediteHand}: nextAction}},
	{name: "notify does not count expedites", in: "another thread expedites",
		rewire: map[edge]place{{notifyUrgent, notifyExpedites}: notifyWord}},
	{name: "notify does not ring who naps", in: "another thread expedites",
		rewire: map[edge]place{{ringLook, ringLook}: back, {ringAdd, ringLook}: back}},
	{name: "progress does not look at expedites before it naps", in: "another thread expedites",
		rewire: map[edge]place{{ticket, napExpedites}: sleep}},
	{name: "an operation that has ended stays urgent", in: "post, expedite, wait",
		rewire: map[edge]place{{endUrgency, endUrgent}: endState}},
	{name: "the last look leaves out what seems attended", in: "two Comms, one expedited", heedless: true},
	{name: "Poll does not hand over", in: "one polls, one runs", rewire: map[edge]place{{0, pollHand}: nextAction}},
	{name: "pass does not hand over", in: "one runs, one posts", rewire: map[edge]place{{unlock, passHand}: passNext}},
	{name: "pass does not hand over a Comm that was stopped", in: "close",
		rewire: map[edge]place{{passHand, passStop}: passNext}},
	{name: "end does not ring those that await their turn", in: "two threads run",
		rewire: map[edge]place{{endPending, ringLook}: back}},
	{name: "the lock is looked at and then taken", in: "two threads run",
		rewire: map[edge]place{{waitLock, waitTake}: waitTakeLate}},
	{name: "Wait keeps the lock", in: "cancel", rewire: map[edge]place{{0, waitDriven}: waitOver}},
	{name: "Abort does not ring", in: "abort", rewire: map[edge]place{{abortLock, ringLook}: back}},
	{name: "Close does not hand over", in: "close", rewire: map[edge]place{{closeRemove, handPending}: back}},
	{name: "the last look leaves out unasked messages", in: "unasked message, run", lazy: true},
	{name: "the last look leaves out unasked messages", in: "unasked message, post", lazy: true},
	{name: "Post of a known call that has ended does not hand over", in: "two threads post known calls",
		rewire: map[edge]place{{0, postNotify}: endNotify}},
	{name: "a slice that is over does not hand over", in: "run in slices",
		rewire: map[edge]place{{unlock, postHand}: nextAction}},
	{name: "a slice that is over still counts as a waiter", in: "run in slices", rewire: map[edge]place{{0, leave}: back}},
	{name: "an operation leaves Run as if it were still inside", in: "run in slices, expedite",
		rewire: map[edge]place{{0, runNotify}: runLeave}},
	{name: "an operation leaves Run as if it were still inside", in: "run in slices, watched",
		rewire: map[edge]place{{0, runNotify}: runLeave}},
	{name: "Completions.Wait does not look again", in: "watcher", rewire: map[edge]place{{ticket, watchCount}: sleep}},
	{name: "Completions.add does not ring", in: "watcher", rewire: map[edge]place{{countAdd, ringLook}: back}},
}

func TestModelMutations(t *testing.T) {
	g := newGraph()
	for i := range mutations {
		mu := &mutations[i]
		t.Run(mu.name+", "+mu.in, func(t *testing.T) {
			sc := scenarios[slices.IndexFunc(scenarios, func(sc scenario) bool { return sc.name == mu.in })]
			states, wrong := g.check(&sc, mu)
			t.Logf("%d states: %s", states, wrong)
			if wrong == "" || wrong == "too many states" {
				t.Fatal("not found")
			}
		})
	}
}
