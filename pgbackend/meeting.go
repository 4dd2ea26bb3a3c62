package pgbackend

import (
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
	"github.com/goccl/goccl/ccl/member/store"
)

// Meeting is an attempt to meet the other ranks of a group, over records that the caller reads and
// writes (package member). It is not safe for concurrent use.
type Meeting struct {
	machine *member.Meeting
	label   string
}

// NewMeeting begins an attempt. It fills what cfg has to know of this process.
func NewMeeting(cfg member.Config) (*Meeting, error) {
	machine, err := store.Begin(cfg)
	if err != nil {
		return nil, err
	}
	return &Meeting{machine: machine, label: fault.Label(cfg.Name, cfg.Rank, cfg.Size)}, nil
}

// Step takes what came of the last request, and returns the next one. When nothing is left to do,
// an error says why there is no group.
func (m *Meeting) Step(a member.Answer) (member.Request, error) {
	return m.next(m.machine.Step(time.Now(), a))
}

// Interrupt gives up, and tells the other ranks why. The attempt goes on with Step.
func (m *Meeting) Interrupt(why string) (member.Request, error) {
	return m.next(m.machine.Interrupt(time.Now(), why))
}

func (m *Meeting) next(r member.Request) (member.Request, error) {
	if r.Op != member.Over {
		return r, nil
	}
	_, err := m.machine.Outcome()
	return r, m.in(err)
}

// Addresses returns the addresses of all ranks, by rank, when they have met.
func (m *Meeting) Addresses() ([][]byte, error) {
	all, err := m.machine.Outcome()
	if err == nil && all == nil {
		err = fault.New(fault.Invalid, "the ranks have not met yet")
	}
	return all, m.in(err)
}

func (m *Meeting) in(err error) error {
	if err == nil {
		return nil
	}
	f, ok := err.(*fault.Error)
	if !ok {
		f = fault.Wrap(fault.Internal, err, "")
	}
	return f.In(m.label, "join")
}
