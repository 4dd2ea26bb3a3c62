package member

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
)

// Config is what a rank brings to a meeting.
type Config struct {
	Name    string // of the group, for messages
	Call    string // what a program calls to meet, for messages: "init_process_group or new_group"
	Rank    int
	Size    int
	OfJob   []uint64 // the numbers of the ranks in the whole job, for messages; empty if they are the same
	Timeout time.Duration
	Self    topo.Process
	Began   time.Time               // when this process did; zero if that is unknown
	Gone    func(topo.Process) bool // whether a process is known to have ended
	Address []byte                  // what the others need to join this rank
	Failed  string                  // why this rank cannot join; "" if it can

	// KeepsStore is set if the records may end with this process. It then stays, for at most a
	// second, until the other ranks have read why there is no group.
	KeepsStore bool
}

// Op is what a Request asks for.
type Op int

const (
	Add   Op = iota + 1 // adds Number to the counter under the key, from 0; Answer.Number is the sum
	Set                 // writes Value under the key
	Check               // Answer.Number is 1 if there are values under all keys, else 0
	Read                // Answer.Values are the values under the keys, which are there; of a counter, its digits
	Swap                // writes Value under the key unless there is one; Answer.Values is what is there then
	Pause               // nothing, for Number ns
	Look                // Answer.Values are the ranks that are known to have died: "RANK WHY"
	Over                // nothing is left to do: see Outcome
)

// Request is what is to be done next.
type Request struct {
	Op     Op
	Keys   []string
	Value  []byte
	Number int64
}

// Answer is what came of a Request.
type Answer struct {
	Number int64
	Values [][]byte
}

// Spans of time.
const (
	firstPause = 100 * time.Microsecond // between looks at the verdict; each is twice as long as the one before
	lastPause  = 20 * time.Millisecond
	lookEach   = 50 * time.Millisecond // between looks at anything else
	keepFor    = time.Second           // see Config.KeepsStore
	keepPause  = 2 * time.Millisecond
)

// Meeting is one rank's attempt to meet the others. It is not safe for concurrent use.
type Meeting struct {
	cfg  Config
	self party
	now  time.Time
	ends time.Time // the time of this attempt
	then step      // what takes the answer to the last request; nil when there was none
	want int       // how many values that answer has

	round   int
	open    bool          // the round had no verdict when this rank's offer was there
	sized   bool          // the size was compared in this round
	pause   time.Duration // the last one
	look    time.Time     // when to look next
	offers  []*offer      // of all ranks
	verdict *verdict      // on the round

	newest []string       // the keys of the newest offers
	twin   string         // the key of a later offer of this rank
	dead   map[int]string // ranks that are known to have died, and how

	asked       []int                  // ranks whose presence in the round is to be found out
	there, away []int                  // those of them that are in it, and those that are not
	asks        func(*Meeting) Request // what follows

	over bool
	err  error
}

type step func(*Meeting, Answer) Request

// New returns the attempt of a rank, which begins now.
func New(cfg Config, now time.Time) *Meeting {
	self := party{Rank: cfg.Rank, Size: cfg.Size, Process: cfg.Self}
	return &Meeting{cfg: cfg, self: self, ends: now.Add(cfg.Timeout)}
}

// Step takes the answer to the last request, and returns the next one. The first call takes none.
func (m *Meeting) Step(now time.Time, a Answer) Request {
	m.now = now
	switch {
	case m.over:
		return Request{Op: Over}
	case m.self.Size == 1: // there is nobody to meet, and torch may give groups of other ranks the same store
		m.offers = []*offer{{party: m.self, At: now.UnixNano(), address: m.cfg.Address}}
		return m.end(nil)
	case m.then == nil:
		return m.ask((*Meeting).number, Request{Op: Add, Keys: []string{cameKey(m.self.Rank)}, Number: 1})
	}
	if len(a.Values) < m.want {
		return m.end(fault.New(fault.Internal, "the store has %d of %d values", len(a.Values), m.want))
	}
	return m.then(m, a)
}

// Interrupt gives the attempt up for a reason of this rank's own, which the others are told. The
// last request may have been answered or not.
func (m *Meeting) Interrupt(now time.Time, why string) Request {
	m.now = now
	m.cfg.KeepsStore = false
	if m.over || m.verdict != nil || m.pause == 0 { // nothing can be written yet, or any more
		return m.end(fault.New(fault.Aborted, "%s", why))
	}
	m.open = true
	return m.judge(&verdict{Kind: failed, Why: why})
}

// Outcome returns, once nothing is left to do, the addresses of all ranks, or why there is no
// group.
func (m *Meeting) Outcome() ([][]byte, error) {
	if !m.over || m.err != nil {
		return nil, m.err
	}
	all := make([][]byte, len(m.offers))
	for rank, o := range m.offers {
		all[rank] = o.address
	}
	return all, nil
}

func (m *Meeting) ask(then step, r Request) Request {
	m.then, m.want = then, 0
	switch r.Op {
	case Read:
		m.want = len(r.Keys)
	case Swap:
		m.want = 1
	}
	return r
}

func (m *Meeting) end(err error) Request {
	m.over, m.err = true, err
	return Request{Op: Over}
}

// The keys.
func cameKey(rank int) string { return fmt.Sprintf("goccl/came/%d", rank) }
func offerKey(round, rank, attempt int) string {
	return fmt.Sprintf("goccl/offer/%d/%d/%d", round, rank, attempt)
}
func countKey(round int) string      { return fmt.Sprintf("goccl/count/%d", round) }
func sizeKey(round int) string       { return fmt.Sprintf("goccl/size/%d", round) }
func verdictKey(round int) string    { return fmt.Sprintf("goccl/verdict/%d", round) }
func readKey(round, rank int) string { return fmt.Sprintf("goccl/read/%d/%d", round, rank) }

func one(key string) []string { return []string{key} }

// keys returns a key for each rank of the group.
func (m *Meeting) keys(of func(rank int) string) []string {
	all := make([]string, m.self.Size)
	for rank := range all {
		all[rank] = of(rank)
	}
	return all
}

// number takes the number of this attempt. That of the round is the same, as a rule: each rank
// comes once to each.
func (m *Meeting) number(a Answer) Request {
	m.self.Attempt, m.round = int(a.Number), max(int(a.Number), 1)
	return m.descend()
}

// descend looks for the first round without a verdict: it is this one if the one before has one.
func (m *Meeting) descend() Request {
	if m.round == 1 {
		return m.enter()
	}
	return m.ask((*Meeting).found, Request{Op: Check, Keys: one(verdictKey(m.round - 1))})
}

func (m *Meeting) found(a Answer) Request {
	if a.Number == 1 {
		return m.enter()
	}
	m.round--
	return m.descend()
}

// enter begins a round, which may have a verdict already.
func (m *Meeting) enter() Request {
	m.open, m.sized, m.verdict, m.offers = false, false, nil, nil
	m.pause, m.look = firstPause, m.now.Add(lookEach)
	if m.cfg.Failed != "" {
		return m.judge(&verdict{Kind: failed, Why: m.cfg.Failed[:min(len(m.cfg.Failed), maxWhy)]})
	}
	mine := offer{party: m.self, At: m.now.UnixNano(), address: m.cfg.Address}
	return m.ask((*Meeting).offered, Request{Op: Set, Keys: one(offerKey(m.round, m.self.Rank, m.self.Attempt)),
		Value: mine.encode()})
}

func (m *Meeting) offered(Answer) Request {
	return m.ask((*Meeting).counted, Request{Op: Add, Keys: one(countKey(m.round)), Number: 1})
}

// counted takes how many have come to the round. A rank may have come several times, but who is the
// last of all the ranks counts at least as many as there are.
func (m *Meeting) counted(a Answer) Request {
	if int(a.Number) < m.self.Size {
		return m.watch()
	}
	return m.gather()
}

// gather looks whether all offers are there. First it tries what is so as a rule: this is the first
// attempt of each rank since the last round.
func (m *Meeting) gather() Request {
	return m.ask((*Meeting).guessed, Request{Op: Check, Keys: m.usual()})
}

// usual returns the keys of the numbers of all ranks' attempts, and of their offers if these
// numbers are that of the round.
func (m *Meeting) usual() []string {
	return append(m.keys(cameKey), m.keys(func(rank int) string { return offerKey(m.round, rank, m.round) })...)
}

func (m *Meeting) guessed(a Answer) Request {
	if a.Number == 1 {
		return m.ask((*Meeting).proposed, Request{Op: Read, Keys: m.usual()})
	}
	return m.ask((*Meeting).gathered, Request{Op: Check, Keys: m.keys(cameKey)})
}

func (m *Meeting) proposed(a Answer) Request {
	attempts, err := m.attempts(a.Values[:m.self.Size])
	if err != nil {
		return m.refuse(err)
	}
	if slices.ContainsFunc(attempts, func(each int) bool { return each != m.round }) {
		return m.choose(attempts)
	}
	return m.weigh(a.Values[m.self.Size:])
}

func (m *Meeting) gathered(a Answer) Request {
	if a.Number == 0 {
		return m.watch()
	}
	return m.ask((*Meeting).listed, Request{Op: Read, Keys: m.keys(cameKey)})
}

func (m *Meeting) listed(a Answer) Request {
	attempts, err := m.attempts(a.Values)
	if err != nil {
		return m.refuse(err)
	}
	return m.choose(attempts)
}

// attempts reads the numbers of the ranks' attempts.
func (m *Meeting) attempts(texts [][]byte) ([]int, error) {
	all := make([]int, len(texts))
	for rank, text := range texts {
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return nil, fault.New(fault.Internal, "the number of attempts of rank %d in the store is %.20q", rank, text)
		}
		all[rank] = n
	}
	return all, nil
}

// choose looks for the newest offers of all ranks.
func (m *Meeting) choose(attempts []int) Request {
	m.newest = m.keys(func(rank int) string { return offerKey(m.round, rank, attempts[rank]) })
	return m.ask((*Meeting).chosen, Request{Op: Check, Keys: m.newest})
}

func (m *Meeting) chosen(a Answer) Request {
	if a.Number == 0 {
		return m.watch() // one that is on its way will look, too
	}
	return m.ask((*Meeting).took, Request{Op: Read, Keys: m.newest})
}

func (m *Meeting) took(a Answer) Request { return m.weigh(a.Values) }

// weigh looks at the offers of all ranks, and writes that they have met if nothing speaks against
// it.
func (m *Meeting) weigh(texts [][]byte) Request {
	if err := m.take(texts); err != nil {
		return m.refuse(err)
	}
	v := &verdict{Kind: met, Size: m.self.Size, Attempts: map[int]int{}}
	for rank, o := range m.offers {
		switch {
		case o.Size != m.self.Size:
			return m.judge(&verdict{Kind: sizes, Other: &o.party})
		case !m.cfg.Gone(o.Process):
			if o.Attempt != m.round {
				v.Attempts[rank] = o.Attempt
			}
		case o.At >= m.cfg.Began.UnixNano(): // it has died in this job
			return m.judge(&verdict{Kind: ended, Other: &o.party})
		case m.late():
			return m.judge(&verdict{Kind: ended, Other: &o.party, Timeout: m.cfg.Timeout})
		default: // left over: who takes its place will look, too
			return m.watch()
		}
	}
	return m.judge(v)
}

// take reads the offers of all ranks.
func (m *Meeting) take(texts [][]byte) error {
	m.offers = make([]*offer, len(texts))
	for rank, text := range texts {
		o, err := parseOffer(text)
		if err != nil {
			return err
		}
		if o.Rank != rank {
			return fault.Peer(fault.Internal, rank, "its record in the store is that of rank %d", o.Rank)
		}
		m.offers[rank] = o
	}
	return nil
}

// refuse ends the round because this rank cannot read a record of another one.
func (m *Meeting) refuse(err error) Request {
	return m.judge(&verdict{Kind: failed, Why: fault.Text(err)})
}

// judge ends the round with a verdict, unless it has one.
func (m *Meeting) judge(v *verdict) Request {
	v.By, v.At = m.self, m.now.UnixNano()
	return m.ask((*Meeting).heard, Request{Op: Swap, Keys: one(verdictKey(m.round)), Value: encode(v)})
}

// heard takes the verdict on the round.
func (m *Meeting) heard(a Answer) Request {
	v, err := parseVerdict(a.Values[0], m.self.Size)
	if err != nil {
		return m.end(err)
	}
	m.verdict = v
	switch {
	case v.Kind == met && (m.open || m.among()):
		return m.met()
	case v.Kind != met && (m.open || v.names(&m.self)):
		return m.told()
	}
	return m.climb()
}

// climb goes to the last round that ended before this rank came: the story of the others is told
// there.
func (m *Meeting) climb() Request {
	return m.ask((*Meeting).climbed, Request{Op: Check, Keys: one(verdictKey(m.round + 1))})
}

func (m *Meeting) climbed(a Answer) Request {
	if a.Number == 1 {
		m.round, m.verdict = m.round+1, nil
		return m.climb()
	}
	if m.verdict == nil {
		return m.ask((*Meeting).learned, Request{Op: Read, Keys: one(verdictKey(m.round))})
	}
	return m.recall()
}

func (m *Meeting) learned(a Answer) Request {
	v, err := parseVerdict(a.Values[0], m.self.Size)
	if err != nil {
		return m.end(err)
	}
	m.verdict = v
	return m.recall()
}

// recall looks whether a round that ended before this rank came is of concern to it.
func (m *Meeting) recall() Request {
	v := m.verdict
	if v.Kind == met || m.cfg.Failed != "" || v.By.Rank == m.self.Rank || v.At < m.cfg.Began.UnixNano() {
		return m.goOn()
	}
	return m.ask((*Meeting).recalled, Request{Op: Check, Keys: one(readKey(m.round, m.self.Rank))})
}

// recalled takes whether this rank was told before that the round has failed.
func (m *Meeting) recalled(a Answer) Request {
	if a.Number == 1 {
		return m.goOn()
	}
	return m.told()
}

// goOn goes to the next round, since this one ended before this rank came.
func (m *Meeting) goOn() Request {
	m.round++
	return m.enter()
}

// among reports whether this attempt is one of those that have met.
func (m *Meeting) among() bool {
	return m.verdict.Size == m.self.Size && m.verdict.attempt(m.self.Rank, m.round) == m.self.Attempt
}

// met takes that the group has met, with this attempt or without it.
func (m *Meeting) met() Request {
	v := m.verdict
	switch {
	case m.among():
		return m.ask((*Meeting).collected, Request{Op: Read, Keys: m.keys(func(rank int) string {
			return offerKey(m.round, rank, v.attempt(rank, m.round))
		})})
	case v.Size != m.self.Size:
		return m.end((&verdict{Kind: sizes, By: v.By, Other: &m.self}).err(&m.self, m.now, &m.cfg))
	}
	return m.end(fault.New(fault.Mismatch, "another process has joined as rank %d; is a rank used twice?", m.self.Rank))
}

func (m *Meeting) collected(a Answer) Request { return m.end(m.take(a.Values)) }

// told ends the attempt without a group.
func (m *Meeting) told() Request {
	return m.ask((*Meeting).marked, Request{Op: Set, Keys: one(readKey(m.round, m.self.Rank)), Value: []byte("1")})
}

func (m *Meeting) marked(Answer) Request {
	m.ends = m.now.Add(keepFor)
	switch {
	case !m.cfg.KeepsStore:
		return m.fail()
	case m.verdict.Kind == failed: // also to ranks that are just coming
		m.there = m.others()
		return m.keep()
	}
	return m.askFor(m.others(), (*Meeting).keep)
}

// keep waits until the other ranks have read the verdict.
func (m *Meeting) keep() Request {
	keys := make([]string, len(m.there))
	for i, rank := range m.there {
		keys[i] = readKey(m.round, rank)
	}
	if len(keys) == 0 {
		return m.fail()
	}
	return m.ask((*Meeting).kept, Request{Op: Check, Keys: keys})
}

func (m *Meeting) kept(a Answer) Request {
	if a.Number == 1 || m.late() {
		return m.fail()
	}
	return m.ask((*Meeting).rested, Request{Op: Pause, Number: int64(keepPause)})
}

func (m *Meeting) rested(Answer) Request { return m.keep() }

func (m *Meeting) fail() Request { return m.end(m.verdict.err(&m.self, m.now, &m.cfg)) }
