// Package agree lets the ranks that are left of a group settle which ranks it has lost.
//
// Each rank begins with the ranks that it believes to be lost, and all that decide, decide for the
// same set: the union of what they began with, and of the ranks that died meanwhile. A rank can
// also veto what the set is needed for; all learn whether one of them did.
//
// It is consensus by flooding in rounds, with the early decision of Raynal ("Consensus in
// synchronous systems: a concise guided tour", 2002): in each round a rank tells all others what it
// knows, and waits for all that have not died. When it has heard from the same ranks in two rounds,
// nobody has died in between with something that only some have heard, and it decides. It tells the
// others the decision, which they take over. That needs two rounds where nobody dies, and one more
// for each round in which somebody does.
//
// Machine is the pure part: it sends nothing, reads no clock, and has no goroutines, so a test
// explores all orders of messages and deaths. Its user must tell the truth about deaths, and bring
// messages of one rank in order.
package agree

import (
	"encoding/json"
	"slices"

	"github.com/goccl/goccl/ccl/fault"
)

// Message is what a rank tells the others in a round.
type Message struct {
	Round   int   `json:"round"` // from 1
	Lost    []int `json:"lost"`  // ascending
	Veto    bool  `json:"veto,omitempty"`
	Decided bool  `json:"decided,omitempty"`
}

// Encode returns the message as a text.
func (m *Message) Encode() []byte {
	text, _ := json.Marshal(m) // of integers: it cannot fail
	return text
}

// Parse reads the message of a member of a group of so many ranks, which is not trusted.
func Parse(text []byte, ranks int) (*Message, error) {
	m := new(Message)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "a message about lost ranks that cannot be read")
	}
	// Each round but two has a death.
	if m.Round < 1 || m.Round > ranks+2 || len(m.Lost) > ranks || !slices.IsSorted(m.Lost) ||
		len(m.Lost) > 0 && (m.Lost[0] < 0 || m.Lost[len(m.Lost)-1] >= ranks) {
		return nil, fault.New(fault.Internal, "a message about lost ranks %v in round %d", m.Lost, m.Round)
	}
	return m, nil
}

// Machine is one rank's part. It is not safe for concurrent use.
type Machine struct {
	self    int
	lost    []bool
	veto    bool
	dead    []bool             // no message will come any more
	early   map[int][]*Message // by rank: those of rounds that have not begun here, oldest first
	round   int
	heard   []bool // in this round
	before  []bool // in the round before
	decided bool
}

// New returns the machine of a rank that knows of some lost ranks, and may have a veto.
func New(self, ranks int, lost []int, veto bool) *Machine {
	m := &Machine{self: self, lost: make([]bool, ranks), dead: make([]bool, ranks), heard: make([]bool, ranks),
		early: map[int][]*Message{}, veto: veto}
	for _, rank := range lost {
		m.lost[rank], m.dead[rank] = true, true
	}
	return m
}

// Begin returns what this rank has to tell all others that are not lost. Hear and Died return what
// follows.
func (m *Machine) Begin() []*Message {
	m.nextRound()
	return append([]*Message{m.message()}, m.advance()...)
}

// Hear handles a message, and returns what this rank has to tell all others then.
func (m *Machine) Hear(from int, message *Message) []*Message {
	if m.decided || m.dead[from] {
		return nil
	}
	if message.Decided {
		clear(m.lost)
		m.veto = false
		m.learn(message)
		m.decided = true
		return []*Message{m.message()}
	}
	m.early[from] = append(m.early[from], message)
	return m.advance()
}

// Died handles the death of a rank, whose messages have all been handled, and returns what this
// rank has to tell all others then.
func (m *Machine) Died(rank int) []*Message {
	if m.decided || m.dead[rank] {
		return nil
	}
	m.dead[rank] = true
	return m.advance()
}

// Decided returns the lost ranks, ascending, and whether there was a veto, once that is settled.
func (m *Machine) Decided() (lost []int, veto, ok bool) { return m.ranks(), m.veto, m.decided }

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
func (m *Machine) awaits(rank int) bool { return rank != m.self && !m.dead[rank] && !m.heard[rank] }

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
		for rank, dead := range m.dead {
			m.lost[rank] = m.lost[rank] || dead && !m.heard[rank]
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
	m.veto = m.veto || message.Veto
}

func (m *Machine) message() *Message {
	return &Message{Round: m.round, Lost: m.ranks(), Veto: m.veto, Decided: m.decided}
}

func (m *Machine) ranks() []int {
	lost := []int{}
	for rank, gone := range m.lost {
		if gone {
			lost = append(lost, rank)
		}
	}
	return lost
}
