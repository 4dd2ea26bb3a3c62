package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
)

// Begin returns the attempt of this process to meet the other ranks. It fills what cfg has to know
// of the process.
func Begin(cfg member.Config) (*member.Meeting, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fault.New(fault.Invalid, "rank %d of %d", cfg.Rank, cfg.Size)
	}
	cfg.Self, cfg.Began = probe.Process()
	self := cfg.Self
	cfg.Gone = func(p topo.Process) bool { return probe.Gone(self, p) }
	return member.New(cfg, time.Now()), nil
}

// Meet meets the other ranks in the store, and returns what all of them have given as Address, by
// rank. cfg.Timeout says how long it waits for them. If ctx is cancelled before that, it gives up,
// and tells them.
func (c *Client) Meet(ctx context.Context, cfg member.Config) ([][]byte, error) {
	all, err := c.meet(ctx, cfg)
	if err == nil {
		return all, nil
	}
	f := (*fault.Error)(nil)
	if !errors.As(err, &f) {
		f = fault.Wrap(fault.System, err, "the store at %v, over which the ranks meet, failed; is the process that "+
			"serves it (rank 0, as a rule) alive?", c.conn.RemoteAddr())
	}
	return nil, f.In(fault.Label(cfg.Name, cfg.Rank, cfg.Size), "join")
}

func (c *Client) meet(ctx context.Context, cfg member.Config) ([][]byte, error) {
	m, err := Begin(cfg)
	if err != nil {
		return nil, err
	}
	gaveUp := func() error { return fault.Wrap(fault.Aborted, context.Cause(ctx), "its context ended") }
	cancelled := func() bool { return errors.Is(ctx.Err(), context.Canceled) }
	c.conn.SetDeadline(time.Now().Add(cfg.Timeout + lastVisit))
	defer context.AfterFunc(ctx, func() {
		if cancelled() {
			c.conn.SetDeadline(time.Now().Add(lastWords))
		}
	})()
	told := false
	for r := m.Step(time.Now(), member.Answer{}); r.Op != member.Over; {
		var a member.Answer
		switch r.Op {
		case member.Pause:
			time.Sleep(time.Duration(r.Number)) // some ms
		case member.Look: // nobody tells this process of deaths
		default:
			if a, err = c.carryOut(r); err != nil && cancelled() {
				return nil, gaveUp()
			} else if err != nil {
				return nil, err
			}
		}
		if !told && cancelled() {
			told = true
			r = m.Interrupt(time.Now(), fmt.Sprintf("its context ended: %v", context.Cause(ctx)))
			continue
		}
		r = m.Step(time.Now(), a)
	}
	if told {
		return nil, gaveUp()
	}
	return m.Outcome()
}
