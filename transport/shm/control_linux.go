package shm

import (
	"fmt"
	"time"
)

// mostUnheard is how many bytes of control messages the connection carries that the peer has not
// handled yet. They leave room for other messages: a peer whose socket is full has stopped
// (sendSpan), but one that does not read control messages may only be slow.
const mostUnheard = 16 << 10

// Tell queues a control message for the peer.
func (l *link) Tell(message []byte) bool {
	p := l.process
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	if l.err.Load() != nil || p.dead != nil || !p.told.Add(l, message) {
		return false
	}
	l.unsent++
	p.unsent++
	p.nudge()
	return true
}

// nudge wakes the goroutine that sends control messages.
func (p *process) nudge() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// speak sends control messages, and acknowledges those of the peer, until the connection has ended.
func (p *process) speak() {
	for range p.poke {
		for {
			message, from, over := p.next()
			if over {
				return
			}
			if message == nil {
				break
			}
			p.send(message)
			if from != nil {
				p.sent(from)
			}
		}
	}
}

// next returns what to send next, nil if there is nothing now, and the link of a control message.
func (p *process) next() (message any, from *link, over bool) {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	switch {
	case p.dead != nil:
		return nil, nil, true
	case p.acked != p.heard:
		p.acked = p.heard
		return &heard{p.heard}, nil, false
	case p.told.Sent() >= mostUnheard:
		return nil, nil, false
	}
	l, text, _, ok := p.told.Next(func(*link) bool { return true })
	if !ok {
		return nil, nil, false
	}
	return &control{l.serial, text}, l, false
}

// sent follows a control message that was sent. After the last one of a link that has closed comes
// its bye.
func (p *process) sent(l *link) {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	l.unsent--
	if l.closed && l.unsent == 0 {
		why := l.why
		f.mu.Unlock()
		p.send(newBye(l.serial, why))
		f.mu.Lock()
	}
	p.unsent--
}

// hear hands a control message to its session. The lock is not held: the handler may call Tell and
// Close.
func (p *process) hear(m *control) {
	f := p.fabric
	f.mu.Lock()
	l := p.links[m.Serial]
	open := l != nil && l.opening == nil && !l.closed && !l.left
	f.mu.Unlock()
	if open && l.session.Control != nil {
		l.session.Control(m.Text)
	}
	f.mu.Lock()
	p.heard++
	f.mu.Unlock()
	p.nudge()
}

// acknowledged is called with the lock held when the peer has handled control messages.
func (p *process) acknowledged(m *heard) error {
	if !p.told.Acknowledge(m.Count) {
		return &protocolError{fmt.Errorf("%d control messages cannot have been handled", m.Count)}
	}
	p.nudge()
	return nil
}

// linger waits until all control messages have been sent, or the deadline.
func (p *process) linger(deadline time.Time) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; time.Now().Before(deadline); <-tick.C {
		p.fabric.mu.Lock()
		over := p.dead != nil || p.unsent == 0
		p.fabric.mu.Unlock()
		if over {
			return
		}
	}
}
