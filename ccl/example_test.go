package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl"
)

// ranks runs a function for each rank of a group of n ranks of this process.
func ranks(n int, each func(ctx context.Context, c *ccl.Communicator) error) {
	run(n, ccl.GroupOptions{}, each)
}

func run(n int, opts ccl.GroupOptions, each func(ctx context.Context, c *ccl.Communicator) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	node, comms, err := ccl.Local(ctx, n, opts)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	var group sync.WaitGroup
	for _, c := range comms {
		group.Go(func() {
			if err := each(ctx, c); err != nil {
				log.Fatal(err)
			}
		})
	}
	group.Wait()
}

func ExampleAllReduce() {
	ranks(3, func(ctx context.Context, c *ccl.Communicator) error {
		x := []float32{float32(c.Rank()), 1}
		if err := ccl.AllReduce(ctx, c, x, x, ccl.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	// Output: [3 3]
}

func ExampleAllGather() {
	ranks(3, func(ctx context.Context, c *ccl.Communicator) error {
		all := make([]int64, 3)
		if err := ccl.AllGather(ctx, c, []int64{int64(10 * c.Rank())}, all); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(all)
		}
		return nil
	})
	// Output: [0 10 20]
}

func ExampleSend() {
	ranks(2, func(ctx context.Context, c *ccl.Communicator) error {
		const tag = 7
		if c.Rank() == 0 {
			return ccl.Send(ctx, c, []float64{1, 2, 3}, 1, tag)
		}
		got := make([]float64, 3)
		from, err := ccl.Recv(ctx, c, got, ccl.AnySource, tag)
		fmt.Println(got, "from rank", from)
		return err
	})
	// Output: [1 2 3] from rank 0
}

// A Work is an operation that goes on while the caller does other work.
func ExampleCommunicator_Start() {
	ranks(2, func(ctx context.Context, c *ccl.Communicator) error {
		x := input(c.Rank(), 1000, 0)
		work, err := c.Start(allReduceCall(x))
		if err != nil {
			return err
		}
		defer work.Free()
		// … compute …
		if err := work.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(same(x, sums(2, 1000, 0)) == nil)
		}
		return nil
	})
	// Output: true
}

// Ranks of several processes exchange their addresses by any means; here both ranks are in one
// program.
func ExampleEndpoint_Join() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const size = 2
	var endpoints [size]*ccl.Endpoint
	addresses := make([][]byte, size)
	for rank := range size {
		node, err := ccl.NewNode(ccl.NodeOptions{}) // one per process
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
		if endpoints[rank], err = node.Open(ccl.Config{Rank: rank, Size: size}); err != nil {
			log.Fatal(err)
		}
		addresses[rank] = endpoints[rank].Address()
	}
	var group sync.WaitGroup
	for rank, endpoint := range endpoints {
		group.Go(func() {
			comm, err := endpoint.Join(ctx, addresses)
			if err != nil {
				log.Fatal(err)
			}
			x := []float32{1}
			if err := ccl.AllReduce(ctx, comm, x, x, ccl.Sum); err != nil {
				log.Fatal(err)
			}
			if rank == 0 {
				fmt.Println(x[0], "ranks")
			}
		})
	}
	group.Wait()
	// Output: 2 ranks
}

// Errors have a class and name the rank.
func ExampleError() {
	ranks(2, func(ctx context.Context, c *ccl.Communicator) error {
		x := make([]float32, 10+c.Rank()) // a mistake: the lengths differ
		err := ccl.AllReduce(ctx, c, x, x, ccl.Sum)
		var e *ccl.Error
		if c.Rank() == 0 && errors.As(err, &e) {
			fmt.Println(errors.Is(err, ccl.Mismatch), e.Peer)
		}
		return nil
	})
	// Output: true 1
}
