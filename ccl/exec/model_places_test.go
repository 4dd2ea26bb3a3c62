//go:build !race

package exec

// place is a step of a thread: an atomic operation of the code, or the code between two.
type place uint8

const (
	ended place = iota

	// Comm.Post and Comm.Run
	postStop
	postLock
	postTry
	postAgain
	runPending
	runStop
	runLock
	runAgain
	runTry
	runAfter
	runRing
	allowed
	pend
	push
	unlock

	// Op.Wait
	waitState
	waitLock
	waitTakeLate // a mutation's: the lock is looked at, and then taken
	overState
	overCancel
	count
	leave
	turnLock

	// park.Bell
	announce
	ticket
	sleep
	cancelSleep
	ringLook
	ringAdd

	// Comm.handOver, Progress.notify
	handPending
	handLock
	handTurns
	handRing
	handWaiting
	notifyComms
	notifyAdd
	notifyUrgent
	notifyUrges
	notifyWord
	notifyBell

	// Comm.advance, Comm.end
	take
	advStop
	advBegin
	advLook
	advMessage
	advUnasked
	endUrgency
	endUrgent
	endState
	endPending
	countAdd

	// Progress
	progressSeen
	progressUrges
	passComms
	passPending
	passWaiting
	passLock
	passUrgent
	passTry
	passHand
	passStop
	doze
	idleWord
	napUrges
	bellSay
	bellUnsay

	// Comm.Abort, Comm.Close, Comm.Nudge, Op.Urge, Op.Poll, completions.Wait
	abortStop
	abortLock
	closeRemove
	cancelFire
	urgeMark
	urgeCount
	pollState
	pollLock
	watchSeen
	watchStates
	watchCount

	publish // a peer's event

	// What follows is no step of its own, but the code between two.
	back // from a call
	nextAction
	postOver
	postNotify
	postCount
	postQueued
	postUnlock
	postHand
	lockedInVain
	stillToPost
	callAllowed
	turnedAway
	pushing
	runBlind // a mutation's
	runOver
	runFreed
	runCount
	runQueued
	runDriven
	runUnlock
	waitTake
	waitDriven
	waitTurn
	waitOver
	waitAgain
	waitLeave
	waitHand
	handThenLeave // a mutation's
	drive
	driveOver
	driveWaits
	driveSleeps
	over
	resting
	look
	lookDriven
	lookOver
	turnOver
	notifyIdle
	notifyNap
	advance
	advTaken
	advHead
	advMessages
	advBroken
	endOp
	endTurns
	endNotify
	passNext
	passLocked
	passDone
	nap
	bellQuiet // a mutation's
	abortUnlock
	abortHand
	nudgeTurns
	urgeHand
	handThenUrgent // a mutation's
	pollUnlock
	pollHand
	publishNext
	places
)

// bell is one of those that threads sleep on.
type bell uint8

const (
	noBell      bell = iota
	processBell      // of drivers, of a rank
	turnsBell        // of a Comm
	idleBell         // of the progress thread
	napBell          // of the progress thread
	countBell        // Completions
)

const (
	maxOps, maxComms, maxRanks, maxThreads = 4, 4, 2, 8
)

// phases of an operation, as its driver sees it.
const (
	unposted uint8 = iota
	inList         // pushed to posted
	queued         // taken
	done
)

type opState struct {
	phase, pos    uint8 // pos is the order of posting
	events, left  uint8 // arrived and not used; those that it needs to end
	begun         bool  // has sent its first bytes; of an unasked message: was read
	pending, fire bool  // op.state == opPending; its Cancel was fired
	urgency       uint8 // opCalm, opUrged, opOver
}

type commState struct {
	lock, stop, broken, listed, clash bool // clash: two collectives ran in one frame
	pending, waiting, drivers, urgent int8
	posts, turns                      uint8 // turns counts the sleepers of the bell
}

type rankState struct {
	bell, idle, nap uint8 // sleepers
	onBell          bool
}

type threadState struct {
	at                                   place
	stack                                [6]place
	depth, action, op, ending, comm, saw uint8
	todo                                 uint8 // a pass: its Comms, as bits
	rests, rings                         bell  // where it is about to sleep, or sleeps; which one it rings
	asleep                               bool
	ticket, word, urges                  bool // the value kept is still the newest
	urgent                               bool // what notify has found
	holds, alone, counted, yes           bool // the lock; it was free of others; waiter.counted; what over returns
	moved, last                          bool // what advance returns; the look before sleeping
	responsible, attended, passMoved     bool // what pass returns
}

type state struct {
	ops      [maxOps]opState
	comms    [maxComms]commState
	ranks    [maxRanks]rankState
	threads  [maxThreads]threadState
	watchers uint8 // sleepers of Completions
}

// A scenario is a program for each thread of one process or two.
type scenario struct {
	name   string
	comms  []int // the rank of each
	ops    []opSpec
	users  []user
	watch  bool           // a thread waits for Completions until all have ended
	silent bool           // no event ever comes
	coarse bool           // see modelStep.fused
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
	unknown   bool  // has no kept program, or is no plain message
	wrong     bool  // is refused, since the call cannot be right
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
