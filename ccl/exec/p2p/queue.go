package p2p

// requestList is a queue of requests, linked through them. A request is in at most one list.
type requestList struct{ head, tail *Request }

func (l *requestList) push(r *Request) {
	r.next, r.prev = nil, l.tail
	if l.tail != nil {
		l.tail.next = r
	} else {
		l.head = r
	}
	l.tail = r
}

func (l *requestList) remove(r *Request) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.tail = r.prev
	}
	r.next, r.prev = nil, nil
}

func (l *requestList) pop() *Request {
	r := l.head
	if r != nil {
		l.remove(r)
	}
	return r
}

// message is the engine's record of an unexpected message, of a rendezvous in either direction, or
// of an answer owed.
type message struct {
	next, prev *message

	peer   int // the source, or the destination
	tag    uint64
	head   int // of a rendezvous: how many of its first bytes follow the request
	eager  bool
	orphan bool // its request was cancelled; Engine.debts counts it
	owe    kind // the answer to send, while in peer.owed
	stage  stage

	length int
	// Of an eager message, the bytes that have arrived; of a rendezvous, the bytes that have moved;
	// of a mismatch, the length of the receive.
	off    int
	buf    []byte // the arrived bytes of an eager message, or of the head of a rendezvous without a receive
	req    *Request
	id     uint64 // in slots; 0 if it has none
	remote uint64 // the peer's id
	order  uint64 // order of arrival
	queue  *queue // while it is in Engine.table
}

// stage is how far a rendezvous has come. It determines what the peer may send.
type stage uint8

const (
	unmatched stage = iota // incoming: no answer has been sent
	cleared                // incoming: the clear-to-send has left, data or an abort may come
	asking                 // outgoing: the request to send has left, one answer may come
	streaming              // outgoing: answered
)

// whole reports whether all of an unexpected message has arrived.
func (m *message) whole() bool { return m.eager && m.off == m.length }

// messageList is a queue of messages, linked through them. A message is in at most one list.
type messageList struct{ head, tail *message }

func (l *messageList) push(m *message) {
	m.next, m.prev = nil, l.tail
	if l.tail != nil {
		l.tail.next = m
	} else {
		l.head = m
	}
	l.tail = m
}

func (l *messageList) remove(m *message) {
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		l.head = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		l.tail = m.prev
	}
	m.next, m.prev = nil, nil
}

func (l *messageList) pop() *message {
	m := l.head
	if m != nil {
		l.remove(m)
	}
	return m
}
