// Package outbox holds the control messages that wait for a peer process.
//
// A message is told to a link, sent over the connection of the pair of processes, and acknowledged
// by the peer. Until then it is kept: if the connection breaks, it is sent again over the next one,
// where the peer says how many it has received. Messages are numbered from 1 in the order in which
// they are sent; those of one link keep theirs, but one that has to wait holds up no other link.
//
// A Queue has no lock: that of its pair guards it.
package outbox

import (
	"slices"

	"github.com/goccl/goccl/transport"
)

// The bounds of a queue. Each message counts as its bytes and what it takes beyond them.
const (
	MaxBytes = 256 << 10
	overhead = 128
)

// Queue is the messages that wait, oldest first. L identifies the link of a message. The zero value
// is empty.
type Queue[L any] struct {
	messages []message[L]
	sent     int    // how many of them have been sent over the connection that there is now
	acked    uint64 // how many messages before them were acknowledged
	reach    uint64 // how many have been sent over any connection
	bytes    [2]int // of those that have not been sent, and of those that have
}

type message[L any] struct {
	link L
	text []byte
}

func (m *message[L]) size() int { return len(m.text) + overhead }

// Add appends a copy of a message. It returns false if the message is too long, or too much waits
// already.
func (q *Queue[L]) Add(link L, text []byte) bool {
	m := message[L]{link: link}
	if len(text) > transport.MaxControl || q.bytes[0]+q.bytes[1]+len(text)+overhead > MaxBytes {
		return false
	}
	m.text = append(m.text, text...)
	q.messages = append(q.messages, m)
	q.bytes[0] += m.size()
	return true
}

// Next returns the oldest message that has not been sent and whose link may send, which now counts
// as sent, and its number. Its text stays unchanged for good.
func (q *Queue[L]) Next(may func(L) bool) (link L, text []byte, number uint64, ok bool) {
	for i := q.sent; i < len(q.messages); i++ {
		m := q.messages[i]
		if !may(m.link) {
			continue
		}
		copy(q.messages[q.sent+1:i+1], q.messages[q.sent:i])
		q.messages[q.sent] = m
		q.sent++
		q.bytes[0] -= m.size()
		q.bytes[1] += m.size()
		number = q.acked + uint64(q.sent)
		q.reach = max(q.reach, number)
		return m.link, m.text, number, true
	}
	return link, nil, 0, false
}

// Acknowledge drops the messages up to a number, which the peer has received. It returns false if
// the number is impossible.
func (q *Queue[L]) Acknowledge(number uint64) bool {
	if number < q.acked || number > q.reach || number-q.acked > uint64(len(q.messages)) {
		return false
	}
	q.drop(0, int(number-q.acked))
	q.acked = number
	return true
}

// Again makes all messages count as not sent: there is another connection. The peer acknowledges
// what it has received before any of them is sent.
func (q *Queue[L]) Again() {
	q.sent = 0
	q.bytes = [2]int{q.bytes[0] + q.bytes[1], 0}
}

// Remove drops the messages of links that will never send. None of those has reached the peer.
func (q *Queue[L]) Remove(never func(L) bool) {
	for i := 0; i < len(q.messages); {
		if never(q.messages[i].link) {
			q.drop(i, i+1)
		} else {
			i++
		}
	}
}

// Reset makes the next message number 1: the peer has forgotten what it has received.
func (q *Queue[L]) Reset() {
	q.Again()
	q.acked, q.reach = 0, 0
}

// drop takes out the messages from index from up to to.
func (q *Queue[L]) drop(from, to int) {
	for i, m := range q.messages[from:to] {
		if from+i < q.sent {
			q.bytes[1] -= m.size()
		} else {
			q.bytes[0] -= m.size()
		}
	}
	q.sent -= max(min(to, q.sent)-from, 0)
	rest := append(q.messages[:from], q.messages[to:]...)
	clear(q.messages[len(rest):])
	if q.messages = rest; len(rest) == 0 {
		q.messages = nil // most pairs have nothing to say most of the time
	}
}

// Empty reports whether nothing waits, not even for its acknowledgement.
func (q *Queue[L]) Empty() bool { return len(q.messages) == 0 }

// Any reports whether a message of one of some links waits.
func (q *Queue[L]) Any(of func(L) bool) bool {
	return slices.ContainsFunc(q.messages, func(m message[L]) bool { return of(m.link) })
}

// Unsent and Sent return how many bytes wait to be sent, and for their acknowledgement.
func (q *Queue[L]) Unsent() int { return q.bytes[0] }
func (q *Queue[L]) Sent() int   { return q.bytes[1] }
