package blame

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/exec/links"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// fake is a rank without lanes: its tests say what it reads. Times are those of the tests.
type fake struct {
	Detector
	rank     int
	calls    Calls
	outside  Standing
	standing Standing
	call     *Call
	inFlight *Operation
	awaited  []int
	links    links.Set
	barred   int
	failure  *fault.Error
}

func (f *fake) Outside() Standing  { return f.outside }
func (f *fake) Standing() Standing { return f.standing }
func (f *fake) Awaited() []int     { return f.awaited }

func (f *fake) Call() (Call, bool) {
	if f.call == nil {
		return Call{}, false
	}
	return *f.call, true
}

func (f *fake) InFlight() (Operation, bool) {
	if f.inFlight == nil {
		return Operation{}, false
	}
	return *f.inFlight, true
}

// fakeLink is the link to a peer: what it is told lies in box.
type fakeLink struct {
	transport.Link
	state transport.LinkState
	err   error
	box   [][]byte
	why   []byte
}

func (l *fakeLink) State() transport.LinkState    { return l.state }
func (l *fakeLink) Channel(int) transport.Channel { return nil }
func (l *fakeLink) Err() error                    { return l.err }
func (l *fakeLink) Flushed() bool                 { return true }
func (l *fakeLink) Open() bool                    { return true }

func (l *fakeLink) Tell(message []byte) bool {
	if l.err == nil {
		l.box = append(l.box, bytes.Clone(message))
	}
	return l.err == nil
}

// newFake makes a rank of a group of some size.
func newFake(t testing.TB, rank, size int) *fake {
	f := &fake{rank: rank}
	all := make([]transport.Link, size)
	for peer := range all {
		if peer != rank {
			all[peer] = new(fakeLink)
		}
	}
	require.NoError(t, f.links.Open(rank, all, 0))
	f.Open(Options{
		Links: &f.links, Lanes: f, Calls: &f.calls, Control: new(Control), Doorbell: park.NewDoorbell(),
		Drive: func() *fault.Error { return fault.New(fault.Closed, "no thread drives") },
		Failure: func() *fault.Error {
			return f.failure
		},
		Barred: func() { f.barred++ },
	})
	return f
}

func newFakes(t testing.TB, size int) (all []*fake) {
	for rank := range size {
		all = append(all, newFake(t, rank, size))
	}
	return all
}

func (f *fake) link(peer int) *fakeLink { return f.links.All[peer].(*fakeLink) }

// hear is a control message that the rank gets.
func (f *fake) hear(peer int, message []byte) { f.opts.Control.Hear(peer, message) }

// told takes the messages for a peer, and returns their kinds.
func (f *fake) told(peer int) (kinds string) {
	for _, message := range f.link(peer).box {
		kinds += string(message[:1])
	}
	f.link(peer).box = nil
	return kinds
}

// die has the link to a peer end as if that had died, and the driver find out.
func (f *fake) die(peer int, t int64) *fault.Error {
	f.link(peer).err = fault.Peer(fault.PeerLost, peer, "it was killed")
	return f.Ending.LinkEnded(peer, f.links.End(peer), t)
}

// deliver brings all messages to those for whom they are, until there are none, and has everybody
// attend to them.
func deliver(all []*fake, t int64) {
	for again := true; again; {
		again = false
		for _, from := range all {
			for _, to := range all {
				if from == to || from == nil || to == nil {
					continue
				}
				box := from.link(to.rank).box
				from.link(to.rank).box = nil
				for _, message := range box {
					again = true
					if to.link(from.rank).err == nil {
						to.hear(from.rank, message)
					}
				}
			}
		}
		for _, f := range all {
			if f != nil {
				f.Attend(t)
			}
		}
	}
}

func ranksOf(err *fault.Error) []int {
	if err == nil {
		return nil
	}
	return slices.Sorted(slices.Values(err.Culprits()))
}

func encodeStanding(s *Standing) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return text
}

func texts(messages [][]byte) (all []string) {
	for _, each := range messages {
		all = append(all, string(each))
	}
	return all
}
