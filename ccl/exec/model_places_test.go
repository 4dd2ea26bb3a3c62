//go:build !race

package exec

// place is one in the code: the atomic operation that its thread does next.
type place uint8

const (
	ended place = iota

	postStop // Comm.Post, Comm.Run
	firstLock
	firstTake
	firstRide
	firstPending
	firstUnlock
	firstOver
	postStopAgain
	pushPending
	pushList
	postLock
	postUnlock
	runLock

	waitLook // Op.Wait
	hastenTry
	hastenTurn
	hastenUnlock
	hastenEnter
	hastenCancel
	heldUnlock
	waitEnter
	waitLoop
	waitCancel
	waitTry
	waitTryLate // a mutation's: the lock is looked at, and then taken
	driveLook
	driveCancel
	waitUnlock
	waitLeave

	bellAnnounce // Bell.Prepare, the last look, Bell.Sleep, Bell.Cancel
	bellTicket
	bellLookOp
	bellLookCancel
	bellSleep
	bellCancel

	turnLoad // Comm.sleepTurn
	turnAnnounce
	turnLookOp
	turnLookLock
	turnLookCancel
	turnSleep
	turnLeave

	handPending // Comm.handOver
	handLock
	handSleepers
	handTurn
	handWake
	handWaiting
	notifyLook // Progress.notify
	notifyAdd
	notifyUrgent
	notifyUrges
	notifyWord
	notifyState
	notifyWake
	rouse

	ringLook // Bell.Ring
	ringAdd

	advTake // Comm.advance
	advStop
	advBegin
	advLook
	advMessage
	advUnasked
	endUrgency // Comm.end
	endUrgent
	endState
	endPending
	endSleepers
	wakeTurn
	countAdd
	countSleepers
	countWake

	progressSeen // Progress.run, pass, idle, nap, sleep
	progressUrges
	passStart
	passPending
	passWaiting
	passLock
	passUrgent
	passTry
	passUnlock
	passSleepers
	passStop
	idleState
	idleLook
	idleSleep
	napState
	napLook
	napSleep
	bellState
	bellLookWord
	awakeState

	abortStop // Comm.Abort, Comm.Close
	abortTry
	abortUnlock
	closeRemove

	cancelFire // Cancel.Fire, Op.Nudge

	urgeMark // Op.Urge
	urgeCount

	pollLook // Op.Poll
	pollTry
	pollUnlock

	watchSeen // completions.Wait, in a thread that waits until all operations have ended
	watchLook
	watchAnnounce
	watchCheck
	watchSleep
	watchLeave

	publish // a peer's event

	// What follows is no step of its own, but the code between two.
	back // from a call
	nextAction
	waitTake
	firstHand
	firstOverHand
	firstCount
	hastenLook
	leaveHand
	handThenLeave // a mutation's
	postHand
	urgeHand
	handThenUrgent // a mutation's
	pollHand
	driveNext
	driveAgain
	bellLookedAgain
	passLocked
	passNext
	passDone
	notifyAct
	endOp
	advHead
	advMessages
	advBroken
	endWake
	endCount
	abortAgain
	abortHand
	nudgeWake
	publishNext
	places
)

var text = [places]string{
	ended: "has ended", postStop: "Post: stop.Load", firstLock: "Post: first lock.CompareAndSwap(0, 1)",
	firstTake: "postKnown: posted.Swap(nil)", firstRide: "postKnown: look for the event of the call", firstPending: "postKnown: pending.Add(1)",
	firstUnlock: "Post: lock.Store(0), no program", firstOver: "postKnown: lock.Store(0), the call has ended", postStopAgain: "allowed: stop.Load",
	hastenTry: "Wait: first lock.CompareAndSwap(0, 1)", hastenTurn: "hasten: goes on or gives up", hastenUnlock: "Wait: lock.Store(0) after hasten",
	hastenEnter: "Wait: waiting.Add(1), with the lock", hastenCancel: "Wait: cancel.fired, with the lock",
	heldUnlock: "Wait: lock.Store(0), cancelled", pushPending: "push: pending.Add(1)",
	pushList: "push: posted.CompareAndSwap", postLock: "Post: lock.CompareAndSwap(0, 1)",
	postUnlock: "Post: lock.Store(0)", runLock: "Run: lock.Load", waitLook: "Wait: first op.state.Load",
	waitEnter: "Wait: waiting.Add(1)", waitLoop: "Wait: op.state.Load", waitCancel: "Wait: cancel.fired",
	waitTry: "Wait: lock.CompareAndSwap(0, 1)", waitTryLate: "Wait: lock.Store(1)", driveLook: "drive: op.state.Load",
	driveCancel: "drive: cancel.fired", waitUnlock: "Wait: lock.Store(0)", waitLeave: "Wait: waiting.Add(-1)",
	bellAnnounce: "Bell.Prepare: sleepers.Add(1)", bellTicket: "Bell.Prepare: rings.Load",
	bellLookOp: "sleep: op.state.Load", bellLookCancel: "sleep: cancel.fired",
	bellSleep: "Bell.Sleep: futex wait on rings", bellCancel: "Bell.Cancel: sleepers-1",
	turnLoad: "sleepTurn: turn.Load", turnAnnounce: "sleepTurn: sleepers.Add(1)",
	turnLookOp: "sleepTurn: op.state.Load", turnLookLock: "sleepTurn: lock.Load",
	turnLookCancel: "sleepTurn: cancel.fired", turnSleep: "sleepTurn: futex wait on turn",
	turnLeave: "sleepTurn: sleepers.Add(-1)", handPending: "handOver: pending.Load", handLock: "handOver: lock.Load",
	handSleepers: "handOver: sleepers.Load", handTurn: "handOver: turn.Add(1)",
	handWake: "handOver: futex wake of 1 on turn", handWaiting: "handOver: waiting.Load",
	notifyLook: "notify: comms.Load", notifyAdd: "notify: add to comms", notifyUrgent: "notify: urgent.Load",
	notifyUrges: "notify: urges.Add(1)", rouse: "notify: futex wake of 1 on urges", notifyWord: "notify: word.Add(1)",
	notifyState: "notify: state.Load", notifyWake: "notify: futex wake of 1 on word",
	ringLook: "Bell.Ring: sleepers.Load", ringAdd: "Bell.Ring: rings.Add(1), futex wake of all",
	advTake: "take: posted.Swap(nil)", advStop: "advance: stop.Load", advBegin: "advance: begin, first bytes sent",
	advLook: "advance: look for the event of the head", advMessage: "advance: look for the event of a message",
	advUnasked: "advance: p2p for messages nobody asked for", endUrgency: "end: op.urgency.Swap(over)",
	endUrgent: "end: urgent.Add(-1)", endState: "end: op.state.Store(done)",
	endPending: "end: pending.Add(-1)", endSleepers: "end: sleepers.Load",
	wakeTurn: "wake: turn.Add(1), futex wake of all", countAdd: "Completions.add: count.Add(1)",
	countSleepers: "Completions.add: sleepers.Load", countWake: "Completions.add: futex wake of all on count",
	progressSeen: "Progress.run: word.Load", progressUrges: "Progress.run: urges.Load",
	passUrgent: "pass: urgent.Load, glimpse", passStart: "pass: comms.Load", passPending: "pass: pending.Load",
	passWaiting: "pass: waiting.Load", passLock: "pass: lock.Load", passTry: "pass: lock.CompareAndSwap(0, 1)", passUnlock: "pass: lock.Store(0)",
	passSleepers: "pass: sleepers.Load", passStop: "pass: stop.Load", idleState: "Progress.run: state.Store(idle)",
	idleLook: "Progress.run: word.Load == seen", idleSleep: "Progress.run: futex wait on word",
	napState: "Progress.nap: state.Store(nap)", napLook: "Progress.nap: urges.Load == urged",
	napSleep: "Progress.nap: timed futex wait on urges", urgeMark: "Urge: urgency.CompareAndSwap(calm, urged)",
	urgeCount: "Urge: urgent.Add(1)", pollLook: "Poll: op.state.Load", pollTry: "Poll: lock.CompareAndSwap(0, 1)",
	pollUnlock: "Poll: lock.Store(0)",
	bellState:  "Progress.sleep: state.Store(bell)", bellLookWord: "Progress.sleep: word.Load != seen",
	awakeState: "Progress: state.Store(awake)", abortStop: "Abort: stop.CompareAndSwap",
	abortTry: "Abort: lock.CompareAndSwap(0, 1)", abortUnlock: "Abort: lock.Store(0)",
	closeRemove: "Close: remove from comms", cancelFire: "Cancel.Fire", watchSeen: "watcher: count.Load",
	watchLook: "watcher: op.state.Load of all", watchAnnounce: "Completions.Wait: sleepers.Add(1)",
	watchCheck: "Completions.Wait: count.Load == seen", watchSleep: "Completions.Wait: futex wait on count",
	watchLeave: "Completions.Wait: sleepers.Add(-1)", publish: "publishes its event",
}

const (
	maxOps, maxComms, maxRanks, maxThreads = 4, 4, 2, 8
)

// phases of an operation, as its driver sees it.
const (
	unposted uint8 = iota
	inList         // pushed to posted
	queued         // taken
	over
)

type opState struct {
	phase, pos    uint8 // pos is the order of posting
	events, left  uint8 // arrived and not used; those that it needs to end
	begun         bool  // has sent its first bytes; of an unasked message: was read
	pending, fire bool  // op.state == opPending; its Cancel was fired
	urgency       uint8 // opCalm, opUrged, opOver
}

type commState struct {
	lock, stop, broken, listed          bool
	pending, waiting, sleepers, drivers int8
	urgent                              int8
	posts                               uint8
}

type rankState struct{ bell, state uint8 }

// fused steps are done together with the one before in coarse scenarios. What they do is searched step by step in the
// others; what is left are the lock, the looks of handOver, sleepTurn and pass, and the last looks before sleeping.
var fused = [places]bool{
	pushList: true, waitEnter: true, bellTicket: true, bellCancel: true, turnLeave: true, notifyWord: true, notifyState: true,
	ringLook: true, ringAdd: true, endPending: true, endSleepers: true, wakeTurn: true, countAdd: true, countSleepers: true,
	countWake: true, idleLook: true, awakeState: true, progressSeen: true, advBegin: true, bellLookWord: true,
	progressUrges: true, notifyUrges: true, endUrgency: true, endUrgent: true, napLook: true, hastenTurn: true, hastenEnter: true,
}

type threadState struct {
	at                                   place
	stack                                [3]place
	depth, action, op, ending, comm, saw uint8
	todo                                 uint8 // a pass: its Comms, as bits
	asleep                               bool
	turn, ring, word, urges              bool // the value kept is still the newest
	urgent                               bool // what notify has found
	moved, last                          bool // what advance returns; a pass: the one before sleeping
	responsible, attended, passMoved     bool // what pass returns
}

type state struct {
	ops      [maxOps]opState
	comms    [maxComms]commState
	ranks    [maxRanks]rankState
	threads  [maxThreads]threadState
	watchers uint8 // completions.sleepers
}

// A scenario is a program for each thread of one process or two.
type scenario struct {
	name   string
	comms  []int // the rank of each
	ops    []opSpec
	users  []user
	watch  bool           // a thread waits for Completions until all have ended
	silent bool           // no event ever comes
	coarse bool           // see fused
	large  bool           // takes a while
	alone  [maxRanks]bool // ranks without a progress thread
	queue  bool           // the events come in the order of the operations
	fresh  bool           // the progress thread starts, and knows no Comm yet; else it sleeps, and has seen them
}

type opSpec struct {
	comm      int
	needs     []int // operations, of any rank, that must have sent before the peer's event for this one comes
	fragments uint8 // events until the end; 0 for 1
	message   bool  // not ordered with the others
	unasked   bool  // no operation: a message from a peer that nobody here asked for
	cancel    bool  // is waited for with a Cancel
	known     bool  // has a kept program
	unknown   bool  // has none, and Post looks for one. Where neither is set this look is left out
}

type user struct {
	rank   int
	script []action
}

type verb uint8

const (
	doPost verb = iota
	doRun
	doWait
	doCancel
	doAbort
	doClose
	doUrge
	doPoll
)

type action struct {
	verb verb
	arg  uint8 // an operation; of doAbort and doClose a Comm
}

func post(op uint8) action      { return action{doPost, op} }
func run(op uint8) action       { return action{doRun, op} }
func wait(op uint8) action      { return action{doWait, op} }
func cancel(op uint8) action    { return action{doCancel, op} }
func abort(comm uint8) action   { return action{doAbort, comm} }
func closing(comm uint8) action { return action{doClose, comm} }
func urge(op uint8) action      { return action{doUrge, op} }
func poll(op uint8) action      { return action{doPoll, op} }

// edge is one way from place to place; from == ended stands for any.
type edge struct{ from, to place }
