package ccl

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
	"github.com/goccl/goccl/ccl/member/store"
)

const (
	initTimeout = 5 * time.Minute // for Init, if nothing else says
	lastVisit   = time.Second     // for those that have not left the store yet, when rank 0 has joined
)

// Init makes the group of all ranks of a job. A launcher has started each of them with RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment: goccl run, torchrun --no-python, or
// any other that sets these. The ranks meet at MASTER_ADDR:MASTER_PORT, where rank 0 listens
// meanwhile; whoever reaches that port is trusted. Init waits for the others until ctx ends, for
// opts.Timeout, or for 5 minutes; its error says who has not come.
//
// The group has a Node of its own (Communicator.Node), which closes with its last Communicator.
func Init(ctx context.Context, opts Options) (*Communicator, error) {
	j, err := launched()
	if err != nil {
		return nil, err
	}
	return j.join(ctx, opts)
}

const worldName = "world" // of the group of all ranks

// join meets the other ranks of the job, and makes their group.
func (j *job) join(ctx context.Context, opts Options) (c *Communicator, err error) {
	wait := cmp.Or(max(opts.Timeout, 0), initTimeout)
	if ends, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(ends))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	cfg := member.Config{Name: worldName, Call: "ccl.Init", Rank: j.rank, Size: j.size, Timeout: wait}
	node, endpoint, err := j.open(opts)
	if err != nil {
		cfg.Failed = fault.Text(err) // which the others are told
	} else {
		cfg.Address = endpoint.Address()
		defer func() {
			if err != nil {
				node.Close()
			}
		}()
	}
	addresses, leave, met := j.meet(ctx, cfg)
	defer leave()
	switch {
	case err != nil:
		return nil, err
	case met != nil:
		return nil, met
	}
	return endpoint.Join(ctx, addresses)
}

// open makes what this rank joins by.
func (j *job) open(opts Options) (*Node, *Endpoint, error) {
	node, err := NewNode(opts.NodeOptions)
	if err != nil {
		return nil, nil, err
	}
	node.ofGroups = true
	e, err := node.Open(Config{Name: worldName, Rank: j.rank, Size: j.size, Options: opts.GroupOptions})
	if err != nil {
		return nil, nil, errors.Join(err, node.Close())
	}
	return node, e, nil
}

// meet returns the addresses of all ranks. Rank 0 serves the store where they meet until leave is
// called, unless the launcher does.
func (j *job) meet(ctx context.Context, cfg member.Config) (addresses [][]byte, leave func(), err error) {
	leave = func() {}
	at := j.address()
	failed := func(code fault.Code, err error, format string, args ...any) error {
		return fault.Wrap(code, err, format, args...).In(fault.Label(cfg.Name, j.rank, j.size), "join")
	}
	if j.rank == 0 && j.size > 1 && !j.agent {
		server, err := store.Serve(j.listenAt())
		if err != nil {
			return nil, leave, failed(fault.System, err, "rank 0 cannot wait for the others at %s (MASTER_ADDR, MASTER_PORT)", at)
		}
		leave = func() { server.Shutdown(lastVisit) }
		at, cfg.KeepsStore = server.Address(), true
	}
	if j.size == 1 {
		return [][]byte{cfg.Address}, leave, nil
	}
	client, err := store.Dial(ctx, at, "/"+j.prefix+"goccl/")
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, leave, failed(fault.Aborted, context.Cause(ctx), "its context ended while it waited for rank 0")
	case err != nil:
		return nil, leave, failed(fault.Timeout, err, "rank 0 has not come to %s (MASTER_ADDR, MASTER_PORT) within %v",
			at, cfg.Timeout.Round(time.Millisecond))
	}
	defer client.Close()
	addresses, err = client.Meet(ctx, cfg)
	return addresses, leave, err
}
