// Package agree lets the ranks that are left of a group settle which ranks it has lost.
//
// Each rank begins with the ranks that it believes to be lost, and all that decide, decide for the
// same set: the union of what they began with, and of the ranks that were lost meanwhile. They also
// decide which of the lost are known to be dead: a rank had proof of that. A rank can also veto
// what the set is needed for, or know something that matters then; all learn whether one of them
// does.
//
// It is consensus by flooding in rounds, with the early decision of Raynal ("Consensus in
// synchronous systems: a concise guided tour", 2002): in each round a rank tells all others what it
// knows, and waits for all that are not gone. When it has heard from the same ranks in two rounds,
// nobody has gone in between with something that only some have heard, and it decides. It tells the
// others the decision, which they take over. That needs two rounds where nobody goes, and one more
// for each round in which somebody does.
//
// Machine is the pure part: it sends nothing, reads no clock, and has no goroutines, so a test
// explores all orders of messages and deaths. Its user must bring messages of one rank in order,
// and none once the rank is gone. A rank that is gone may live, where a network is cut: then each
// part decides for itself, and package member says which one may go on.
package agree

import (
	"encoding/json"
	"slices"

	"github.com/goccl/goccl/ccl/fault"
)

// Message is what a rank tells the others in a round.
type Message struct {
	Round   int   // from 1
	Lost    []int // ascending
	Dead    []int // those of them that are known to be dead, ascending
	Veto    bool
	Known   bool // see Terms
	Decided bool
}

// wire is the text of a message. Of a dead rank, Lost has the complement.
type wire struct {
	Round   int   `json:"round"`
	Lost    []int `json:"lost"`
	Veto    bool  `json:"veto,omitempty"`
	Known   bool  `json:"known,omitempty"`
	Decided bool  `json:"decided,omitempty"`
}

// Encode returns the message as a text.
func (m *Message) Encode() []byte {
	w := wire{m.Round, slices.Clone(m.Lost), m.Veto, m.Known, m.Decided}
	for i, rank := range w.Lost {
		if slices.Contains(m.Dead, rank) {
			w.Lost[i] = ^rank
		}
	}
	text, _ := json.Marshal(w) // of integers: it cannot fail
	return text
}

// Parse reads the message of a member of a group with that many ranks, which is not trusted.
func Parse(text []byte, ranks int) (*Message, error) {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "a message about lost ranks that cannot be read")
	}
	m := &Message{Round: w.Round, Lost: []int{}, Dead: []int{}, Veto: w.Veto, Known: w.Known, Decided: w.Decided}
	// In each round but two a rank is gone.
	wrong := w.Round < 1 || w.Round > ranks+2
	for _, rank := range w.Lost {
		if rank < 0 {
			rank = ^rank
			m.Dead = append(m.Dead, rank)
		}
		wrong = wrong || rank >= ranks || len(m.Lost) > 0 && rank <= m.Lost[len(m.Lost)-1]
		m.Lost = append(m.Lost, rank)
	}
	if wrong {
		return nil, fault.New(fault.Internal, "a message about lost ranks %v in round %d", w.Lost, w.Round)
	}
	return m, nil
}

// Machine is one rank's part. It is not safe for concurrent use.
type Machine struct {
	self    int
	lost    []bool
	dead    []bool // of the lost
	veto    bool
	known   bool
	gone    []bool             // no message will come any more
	proven  []bool             // of those that are gone: this rank knows that they are dead
	early   map[int][]*Message // by rank: those of rounds that have not begun here, oldest first
	round   int
	heard   []bool // in this round
	before  []bool // in the round before
	decided bool
}

// New returns the machine of a rank that knows of some lost ranks, some of which are dead, and may
// have a veto, or know what the others may not.
func New(self, ranks int, lost, dead []int, veto, known bool) *Machine {
	m := &Machine{self: self, lost: make([]bool, ranks), dead: make([]bool, ranks), gone: make([]bool, ranks),
		proven: make([]bool, ranks), heard: make([]bool, ranks), early: map[int][]*Message{}, veto: veto, known: known}
	for _, rank := range lost {
		m.lost[rank], m.gone[rank], m.dead[rank] = true, true, slices.Contains(dead, rank)
	}
	return m
}

// Begin returns what this rank has to tell all others that are not lost. Hear and Gone return what
// follows.
func (m *Machine) Begin() []*Message {
	m.nextRound()
	return append([]*Message{m.message()}, m.advance()...)
}

// Hear handles a message, and returns what this rank has to tell all others then.
func (m *Machine) Hear(from int, message *Message) []*Message {
	if m.decided || m.gone[from] {
		return nil
	}
	if message.Decided {
		clear(m.lost)
		clear(m.dead)
		m.veto, m.known = false, false
		m.learn(message)
		m.decided = true
		return []*Message{m.message()}
	}
	m.early[from] = append(m.early[from], message)
	return m.advance()
}

// Gone handles the loss of a rank, whose messages have all been handled, and returns what this rank
// has to tell all others then. dead means that there is proof of its death.
func (m *Machine) Gone(rank int, dead bool) []*Message {
	if m.decided || m.gone[rank] {
		return nil
	}
	m.gone[rank], m.proven[rank] = true, dead
	return m.advance()
}

// Decided returns what is settled, or nil.
func (m *Machine) Decided() *Message {
	if !m.decided {
		return nil
	}
	return m.message()
}

// Awaited returns the ranks that this one waits for.
func (m *Machine) Awaited() (ranks []int) {
	for rank := range m.lost {
		if !m.decided && m.awaits(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// awaits reports whether a message of this round has to come from a rank.
func (m *Machine) awaits(rank int) bool { return rank != m.self && !m.gone[rank] && !m.heard[rank] }

func (m *Machine) nextRound() {
	m.round++
	m.before, m.heard = m.heard, make([]bool, len(m.lost))
}

// advance takes the messages of this round, and goes on to the next ones for as long as nothing is
// missing.
func (m *Machine) advance() (tell []*Message) {
	for {
		complete := true
		for rank := range m.lost {
			if waiting := m.early[rank]; rank != m.self && !m.heard[rank] && len(waiting) > 0 {
				m.early[rank], m.heard[rank] = waiting[1:], true
				m.learn(waiting[0])
			}
			complete = complete && !m.awaits(rank)
		}
		if !complete {
			return tell
		}
		for rank, gone := range m.gone {
			if gone && !m.heard[rank] {
				m.lost[rank], m.dead[rank] = true, m.dead[rank] || m.proven[rank]
			}
		}
		if m.round > 1 && slices.Equal(m.heard, m.before) {
			m.decided = true
			return append(tell, m.message())
		}
		m.nextRound()
		tell = append(tell, m.message())
	}
}

func (m *Machine) learn(message *Message) {
	for _, rank := range message.Lost {
		m.lost[rank] = true
	}
	for _, rank := range message.Dead {
		m.dead[rank] = true
	}
	m.veto, m.known = m.veto || message.Veto, m.known || message.Known
}

func (m *Machine) message() *Message {
	return &Message{Round: m.round, Lost: ranksOf(m.lost), Dead: ranksOf(m.dead), Veto: m.veto, Known: m.known,
		Decided: m.decided}
}

func ranksOf(set []bool) []int {
	ranks := []int{}
	for rank, in := range set {
		if in {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
