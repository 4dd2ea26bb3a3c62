package blame

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

// The kinds of control messages, which follow from their first byte. Then come a number, 4 bytes,
// and a text, but in those with calls, which are calls.go's.
const (
	controlQuestion  = 'q' // the number of an inquiry
	controlAnswer    = 'a' // the same, and a Standing as JSON
	controlFailed    = 'f' // the number means nothing; the report of a failure (ending.go)
	controlWhoIsLost = 'l' // the number of a question, and a roll as JSON (losses.go)
	controlTheseAre  = 'L' // the same, as an answer
	controlCompare   = 'c' // the last calls of a rank, which wants an answer
	controlCalls     = 'd' // the same, as an answer
)

func head(kind byte, number uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{kind}, number)
}

// Control takes the control messages of a group's links. It is made before the links are, and then
// given to the Detector.
type Control struct {
	detector atomic.Pointer[Detector]
	pending  atomic.Bool // the driver has something to do
}

// Hear handles a message of a peer. A goroutine of a transport calls it.
func (k *Control) Hear(peer int, message []byte) {
	d := k.detector.Load()
	if d == nil || len(message) == 0 {
		return
	}
	kind := message[0]
	if kind == controlCompare || kind == controlCalls {
		if d.Comparison.hear(peer, message[1:], kind == controlCompare) {
			d.opts.wake()
			go d.attendSoon()
		}
		return
	}
	if len(message) < 5 {
		return
	}
	number, text := binary.LittleEndian.Uint32(message[1:]), message[5:]
	switch kind {
	case controlQuestion:
		d.Inquiry.hearQuestion(peer, number)
	case controlAnswer:
		d.Inquiry.hearAnswer(peer, number, text)
	case controlFailed:
		d.Ending.hearFailure(peer, text)
		d.opts.wake()
		go d.attendSoon()
	case controlWhoIsLost, controlTheseAre:
		d.Losses.hear(peer, kind == controlWhoIsLost, number, text)
	}
}

// Wake wakes the driver: it has control messages to handle. Any thread may call it.
func (d *Detector) Wake() { d.opts.wake() }

func (o *Options) wake() {
	o.Control.pending.Store(true)
	o.Doorbell.Ring()
}

// attendSoon attends to control messages where no thread drives.
func (d *Detector) attendSoon() {
	k := d.opts.Control
	for pause := 20 * time.Microsecond; k.pending.Load() && pause < time.Second; pause *= 2 {
		if d.opts.Drive() != nil {
			return
		}
		if k.pending.Load() {
			<-time.After(pause)
		}
	}
}
