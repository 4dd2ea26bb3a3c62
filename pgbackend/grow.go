package pgbackend

import (
	"context"
	"errors"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// Invitation returns the text by which new processes find the group: see ccl.Communicator.Address.
func (g *Group) Invitation() (string, error) {
	comm, err := g.joined()
	if err != nil {
		return "", err
	}
	return comm.Address()
}

// GrowFrom gives the group, which has no members yet, those of another group, and newcomers that
// come within a while; see ccl.Communicator.Grow. If none come, it stays without members. Abort and
// Close end it.
func (g *Group) GrowFrom(from *Group, newcomers int, wait time.Duration) error {
	comm := from.comm.Load()
	if comm == nil {
		return from.absent("grow")
	}
	by := time.Now().Add(g.timeout).Add(wait)
	return g.enter("grow", from.member(), by, func(ctx context.Context) (*ccl.Communicator, []int, error) {
		next, err := comm.Grow(ctx, newcomers, wait)
		if err != nil || next == comm {
			return nil, nil, err
		}
		next.SetTimeout(g.timeout)
		return next, nil, nil
	})
}

// coming is what a newcomer joins with.
type coming struct {
	node   *ccl.Node
	config ccl.Config
}

// OpenNewcomer makes a group without members, for Come. Rank, Size and Name do not count.
func OpenNewcomer(cfg Config) (*Group, error) {
	g, err := openNewcomer(cfg)
	if f := (&fault.Error{}); errors.As(err, &f) {
		return nil, f.In(fault.NewcomerLabel(cfg.Name), "open")
	}
	return g, err
}

func openNewcomer(cfg Config) (*Group, error) {
	if cfg.Device != "" {
		return nil, fault.New(fault.NotSupported, "groups on devices do not grow")
	}
	cfg.Size = 0
	g, err := open(cfg)
	if err != nil {
		return nil, err
	}
	opts, err := ccl.ParseOptions(cfg.Options)
	if err != nil {
		return nil, err
	}
	if opts.Timeout > 0 {
		g.timeout = opts.Timeout
	}
	opts.RecordFile = "" // as in open
	n, err := node(opts.NodeOptions)
	if err != nil {
		return nil, err
	}
	g.coming = &coming{n, ccl.Config{Timeout: cfg.Timeout, Options: opts.GroupOptions, Node: &opts.NodeOptions,
		Client: cfg.Shim}}
	return g, nil
}

// Come joins the running group that an Invitation leads to, within the group's timeout. Abort and
// Close end it.
func (g *Group) Come(invitation string) error {
	if g.coming == nil {
		return g.absent("join")
	}
	return g.enter("join", fault.NewcomerLabel(g.name), g.opened.Add(g.timeout),
		func(ctx context.Context) (*ccl.Communicator, []int, error) {
			comm, err := g.coming.node.Join(ctx, g.coming.config, invitation)
			return comm, nil, err
		})
}
