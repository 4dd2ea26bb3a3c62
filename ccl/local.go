package ccl

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Local makes a group of n ranks of this process, for tests and for programs whose ranks are
// goroutines. Closing the returned Node closes all ranks.
func Local(ctx context.Context, n int, opts GroupOptions) (*Node, []*Communicator, error) {
	node, err := NewNode(NodeOptions{})
	if err != nil {
		return nil, nil, err
	}
	endpoints := make([]*Endpoint, n)
	addresses := make([][]byte, n)
	for rank := range n {
		endpoints[rank], err = node.Open(Config{Name: "local", Rank: rank, Size: n, Options: opts})
		if err != nil {
			return nil, nil, errors.Join(err, node.Close())
		}
		addresses[rank] = endpoints[rank].Address()
	}
	comms := make([]*Communicator, n)
	errs := make([]error, n)
	var group sync.WaitGroup
	for rank := range n {
		group.Go(func() {
			comms[rank], errs[rank] = endpoints[rank].Join(ctx, addresses)
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("local group of %d: %w", n, err), node.Close())
	}
	return node, comms, nil
}
