//go:build !race

package exec

// place is a place in the code of a thread: a step, which is an atomic operation, or the code
// between two steps.
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
	waitTakeLate // of a mutation: the lock is checked, and then taken
	overState
	overCancel
	overTime
	count
	leave
	turnLock

	// park.Doorbell
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
	notifyExpedites
	notifyWord
	notifyDoorbell

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
	progressExpedites
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
	napExpedites
	doorbellSay
	doorbellUnsay

	// Comm.Abort, Comm.Close, Comm.Nudge, Op.Expedite, Op.Poll, completions.Wait
	abortStop
	abortLock
	closeRemove
	cancelFire
	expediteMark
	expediteCount
	pollState
	pollLock
	watchSeen
	watchStates
	watchCount

	publish // a peer's event

	// The places that follow are no steps, but the code between two steps.
	back // returns from a call
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
	runBlind // of a mutation
	runOver
	runFreed
	runCount
	runQueued
	runDriven
	runNotify
	runLeave
	runUnlock
	waitTake
	waitDriven
	waitTurn
	waitOver
	waitAgain
	waitLeave
	waitHand
	handThenLeave // of a mutation
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
	doorbellQuiet // of a mutation
	abortUnlock
	abortHand
	nudgeTurns
	expediteHand
	handThenUrgent // of a mutation
	pollUnlock
	pollHand
	publishNext
	places
)

// doorbell is a doorbell that threads sleep on.
type doorbell uint8

const (
	noDoorbell      doorbell = iota
	processDoorbell          // of a rank, for its drivers
	turnsDoorbell            // of a Comm
	idleDoorbell             // of the progress thread
	napDoorbell              // of the progress thread
	countDoorbell            // Completions
)

const (
	maxOps, maxComms, maxRanks, maxThreads = 4, 4, 2, 8
)

// Phases of an operation, as its driver sees it.
const (
	unposted uint8 = iota
	inList         // pushed to posted
	queued         // taken
	done
)

type opState struct {
	phase, pos    uint8 // pos is the order of posting
	events, left  uint8 // events that arrived and are not used; events that it still needs to end
	begun         bool  // has sent its first bytes; of an unasked message: was read
	pending, fire bool  // op.state == opPending; its Cancel was fired
	urgency       uint8 // opCalm, opExpedited, opOver
	notify, kept  bool  // its end counts; its caller has the Op
}

type commState struct {
	lock, stop, broken, listed, clash bool // clash: two collectives ran in one frame
	pending, waiting, drivers, urgent int8
	posts, turns                      uint8 // turns counts the sleepers of Comm.turns
}

type rankState struct {
	doorbell, idle, nap uint8 // sleepers
	onDoorbell          bool
}

type threadState struct {
	at                                   place
	stack                                [6]place
	depth, action, op, ending, comm, saw uint8
	todo                                 uint8    // in a pass: the Comms that are still to come, as bits
	rests, rings                         doorbell // the doorbell on which it sleeps, or is about to; the one it rings
	asleep                               bool
	ticket, word, expedites              bool // the value that it has read is still the newest
	urgent                               bool // notify has found urgent operations
	holds, alone, counted, yes           bool // the lock; Run is alone on the Comm; waiter.counted; what over returns
	moved, last                          bool // what advance returns; this is the last check before sleeping
	responsible, attended, passMoved     bool // what pass returns
}

type state struct {
	ops      [maxOps]opState
	comms    [maxComms]commState
	ranks    [maxRanks]rankState
	threads  [maxThreads]threadState
	watchers uint8 // sleepers of Completions
}

// scenario is a script for each thread of one process or two.
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
	fresh  bool           // the progress thread starts, and knows no Comm yet; otherwise it sleeps, and has seen them
}

type opSpec struct {
	comm      int
	needs     []int // operations, of any rank, that must have sent before the peer's event for this one comes
	fragments uint8 // events until the end; 0 for 1
	message   bool  // not ordered with the others
	unasked   bool  // no operation, but a message from a peer for which there is no receive
	cancel    bool  // is waited for with a Cancel
	slices    bool  // is run and waited for in slices: each may be over at any time
	unknown   bool  // has no kept program, or is no plain message
	wrong     bool  // is refused, since the call is invalid
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
	doExpedite
	doPoll
)

type action struct {
	verb verb
	arg  uint8 // an operation; for doAbort and doClose a Comm
}

func post(op uint8) action      { return action{doPost, op} }
func run(op uint8) action       { return action{doRun, op} }
func wait(op uint8) action      { return action{doWait, op} }
func cancel(op uint8) action    { return action{doCancel, op} }
func abort(comm uint8) action   { return action{doAbort, comm} }
func closing(comm uint8) action { return action{doClose, comm} }
func expedite(op uint8) action  { return action{doExpedite, op} }
func poll(op uint8) action      { return action{doPoll, op} }

// edge leads from one place to another; from == ended stands for any place.
type edge struct{ from, to place }
