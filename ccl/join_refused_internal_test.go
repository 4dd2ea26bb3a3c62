package ccl

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/shm"
)

// TestTree has every rank of groups know the same tree.
func TestTree(t *testing.T) {
	for _, hosts := range [][]int{{0}, {0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}, {0, 1, 0, 1, 2, 2, 2, 0}} {
		group := topo.OnHosts(hosts...)
		children := 0
		for rank := range hosts {
			of := treeOf(group, rank)
			require.Equal(t, rank == 0, of.parent < 0)
			children += len(of.children)
			for _, child := range of.children {
				require.Equal(t, rank, treeOf(group, child).parent, "%v: parent of %d", hosts, child)
				require.Greater(t, child, rank)
			}
		}
		require.Equal(t, len(hosts)-1, children)
	}
}

var refusals = flag.Int("refusals", 16, "groups of TestRefusedAtRandom")

// sandboxed opens the ranks of a group, of hosts as topo.OnHosts has them. Where denied says so,
// the first rank may not connect to the second one by shared memory.
func sandboxed(t *testing.T, hosts []int, opts GroupOptions, denied func(from, to int) bool) ([]*Endpoint, [][]byte) {
	t.Helper()
	ranks := map[string]int{} // by the address of their shared memory
	endpoints, addresses := make([]*Endpoint, len(hosts)), make([][]byte, len(hosts))
	for rank := range hosts {
		node, err := NewNode(NodeOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { node.Close() })
		fabric, err := shm.New(shm.Options{Doorbell: node.page, Arena: node.registered, Deny: func(peer []byte) error {
			if denied(rank, ranks[string(peer)]) {
				return syscall.EACCES
			}
			return nil
		}})
		if err != nil {
			t.Skipf("shared memory cannot be used here: %v", err)
		}
		node.fabrics["shm"], ranks[string(fabric.Address())] = fabric, rank
		endpoints[rank] = openOn(t, node, rank, hosts, opts)
		addresses[rank] = endpoints[rank].address
	}
	return endpoints, addresses
}

// openOn opens a rank that takes itself for one of a host.
func openOn(t *testing.T, node *Node, rank int, hosts []int, opts GroupOptions) *Endpoint {
	t.Helper()
	e, err := node.Open(Config{Name: "refused", Rank: rank, Size: len(hosts), Timeout: time.Minute, Options: opts})
	require.NoError(t, err)
	var a address
	require.NoError(t, json.Unmarshal(e.address, &a))
	a.Place.Network = uint64(hosts[rank])
	e.address, err = json.Marshal(a)
	require.NoError(t, err)
	return e
}

// joinAll joins ranks after delays. Those with a negative one do not come.
func joinAll(endpoints []*Endpoint, addresses [][]byte, delays []time.Duration) ([]*Communicator, []error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	comms, errs := make([]*Communicator, len(endpoints)), make([]error, len(endpoints))
	var all sync.WaitGroup
	for rank, e := range endpoints {
		if delays[rank] < 0 {
			continue
		}
		all.Go(func() {
			time.Sleep(delays[rank])
			comms[rank], errs[rank] = e.Join(ctx, addresses)
		})
	}
	all.Wait()
	return comms, errs
}

// agreeing checks that ranks have joined the same group, and that it works.
func agreeing(t *testing.T, comms []*Communicator, errs []error) {
	t.Helper()
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
		require.Equal(t, comms[0].Group().Hash(), comms[rank].Group().Hash(), "rank %d", rank)
	}
	onAll(t, comms, func(rank int) error {
		sum := []int32{0}
		err := AllReduce(context.Background(), comms[rank], []int32{int32(rank + 1)}, sum, Sum)
		if want := int32(len(comms) * (len(comms) + 1) / 2); err == nil && sum[0] != want {
			return fmt.Errorf("the sum is %d, want %d", sum[0], want)
		}
		return err
	})
}

// TestRefusedPairs has each pair of ranks of a host be refused, by one side or by both.
func TestRefusedPairs(t *testing.T) {
	for _, hosts := range [][]int{{0, 0}, {0, 0, 0}, {0, 0, 1, 1}} {
		for a := range hosts {
			for b := range hosts {
				if a == b || hosts[a] != hosts[b] {
					continue
				}
				for _, both := range []bool{false, true} {
					if both && a > b {
						continue
					}
					t.Run(fmt.Sprintf("%v/%d to %d/both %v", hosts, a, b, both), func(t *testing.T) {
						t.Parallel()
						endpoints, addresses := sandboxed(t, hosts, GroupOptions{}, func(from, to int) bool {
							return from == a && to == b || both && from == b && to == a
						})
						comms, errs := joinAll(endpoints, addresses, make([]time.Duration, len(hosts)))
						agreeing(t, comms, errs)
						if both { // otherwise they share memory, unless the machine is very busy
							require.Equal(t, "tcp", pathTo(comms[a], b))
						}
					})
				}
			}
		}
	}
}

func pathTo(c *Communicator, rank int) string {
	for _, path := range c.Paths() {
		if path.Rank == rank {
			return path.Transport
		}
	}
	return ""
}

// TestRefusedAtRandom has ranks of which some pairs are refused join after random delays, in two
// groups. They agree each time. Run it with -refusals 200 to be sure.
func TestRefusedAtRandom(t *testing.T) {
	tries := *refusals
	if testing.Short() {
		tries = min(tries, 6)
	}
	for try := range tries {
		t.Run(strconv.Itoa(try), func(t *testing.T) {
			if try%4 > 0 {
				t.Parallel()
			}
			source := rand.New(rand.NewPCG(uint64(try), 7))
			hosts := make([]int, 2+source.IntN(4))
			for rank := range hosts {
				hosts[rank] = source.IntN(1 + try%3)
			}
			never := map[[2]int]bool{}
			for range 1 + source.IntN(2*len(hosts)) {
				a, b := source.IntN(len(hosts)), source.IntN(len(hosts))
				never[[2]int{a, b}] = true
				if source.IntN(3) > 0 {
					never[[2]int{b, a}] = true
				}
			}
			delays := make([]time.Duration, len(hosts))
			for rank := range delays {
				switch source.IntN(3) {
				case 0:
					delays[rank] = time.Duration(source.IntN(50)) * time.Millisecond
				case 1:
					delays[rank] = time.Duration(900+source.IntN(400)) * time.Millisecond
				}
			}
			t.Logf("hosts %v, delays %v, denied %v", hosts, delays, never)
			denied := func(from, to int) bool { return never[[2]int{from, to}] }
			endpoints, addresses := sandboxed(t, hosts, GroupOptions{}, denied)
			for range 2 {
				comms, errs := joinAll(endpoints, addresses, delays)
				agreeing(t, comms, errs)
				for rank, e := range endpoints {
					endpoints[rank] = openOn(t, e.node, rank, hosts, GroupOptions{})
					addresses[rank] = endpoints[rank].address
				}
			}
		})
	}
}

// TestRefusedLaterGroups has the ranks of later groups know of the refusal before they join: one of
// those that were refused, or both, have no shared memory, the others share it with each other.
func TestRefusedLaterGroups(t *testing.T) {
	hosts := []int{0, 0, 0, 0}
	endpoints, addresses := sandboxed(t, hosts, GroupOptions{}, func(from, to int) bool { return from+to == 1 })
	comms, errs := joinAll(endpoints, addresses, make([]time.Duration, 4))
	agreeing(t, comms, errs)
	require.Len(t, comms[2].Group().Hosts(), 4)
	for rank, e := range endpoints {
		endpoints[rank] = openOn(t, e.node, rank, hosts, GroupOptions{})
		addresses[rank] = endpoints[rank].address
	}
	comms, errs = joinAll(endpoints, addresses, make([]time.Duration, 4))
	agreeing(t, comms, errs)
	require.Equal(t, "shm", pathTo(comms[2], 3))
	require.Equal(t, "tcp", pathTo(comms[0], 1))
	require.Contains(t, endpoints[0].lacking+endpoints[1].lacking, "it is refused between ranks")
}

// TestRefusedWithoutASecondWay has all ranks say why, where the options allow nothing but shared
// memory.
func TestRefusedWithoutASecondWay(t *testing.T) {
	endpoints, addresses := sandboxed(t, []int{0, 0, 0}, GroupOptions{Transport: "shm"},
		func(from, to int) bool { return from+to == 1 })
	_, errs := joinAll(endpoints, addresses, make([]time.Duration, 3))
	for rank, err := range errs {
		require.ErrorIs(t, err, fault.NotSupported, "rank %d", rank)
		require.ErrorContains(t, err, "may not connect to its process", "rank %d", rank)
	}
}

// TestRefusedAndDead has a rank die while others find that memory is refused: nobody waits for it,
// nor for those that have failed because of its death, and all name it.
func TestRefusedAndDead(t *testing.T) {
	for try := range 6 {
		t.Run(strconv.Itoa(try), func(t *testing.T) {
			t.Parallel()
			const dead = 3
			endpoints, addresses := sandboxed(t, []int{0, 0, 0, 0, try % 2}, GroupOptions{},
				func(from, to int) bool { return from+to == 1 })
			require.NoError(t, endpoints[dead].node.Close())
			begun := time.Now()
			comms, errs := joinAll(endpoints, addresses, []time.Duration{0, 0, time.Duration(try) * lastLinks, -1, 0})
			var calls sync.WaitGroup
			for rank, c := range comms {
				if c != nil { // by TCP it is linked with its neighbours only
					calls.Go(func() { errs[rank] = Barrier(context.Background(), c) })
				}
			}
			calls.Wait()
			require.Less(t, time.Since(begun), 10*time.Second)
			for rank, err := range errs {
				if rank == dead {
					continue
				}
				f := &fault.Error{}
				require.ErrorIs(t, err, fault.PeerLost, "rank %d", rank)
				require.True(t, errors.As(err, &f))
				require.Equal(t, []int{dead}, f.Culprits(), "rank %d: %v", rank, err)
			}
		})
	}
}

// TestRefusedNewcomer: a process comes to a group that shares memory, and shares none with one of
// its ranks. Then none of them do.
func TestRefusedNewcomer(t *testing.T) {
	const ranks = 2
	endpoints, _ := sandboxed(t, make([]int, ranks+1), GroupOptions{},
		func(from, to int) bool { return from+to == ranks })
	group, addresses := make([]*Endpoint, ranks), make([][]byte, ranks)
	for rank := range group {
		e, err := endpoints[rank].node.Open(Config{Name: "two", Rank: rank, Size: ranks, Timeout: time.Minute})
		require.NoError(t, err)
		group[rank], addresses[rank] = e, e.address
	}
	comms, errs := joinAll(group, addresses, make([]time.Duration, ranks))
	agreeing(t, comms, errs)
	require.Equal(t, "shm", pathTo(comms[0], 1))
	address, err := comms[0].Address()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	next, errs := make([]*Communicator, ranks+1), make([]error, ranks+1)
	var all sync.WaitGroup
	for rank := range next {
		all.Go(func() {
			if rank == ranks {
				next[rank], errs[rank] = endpoints[rank].node.Join(ctx, Config{Timeout: time.Minute}, address)
			} else {
				next[rank], errs[rank] = comms[rank].Grow(ctx, 1, time.Minute)
			}
		})
	}
	all.Wait()
	agreeing(t, next, errs)
	require.Equal(t, ranks+1, next[0].Size())
	require.Equal(t, "tcp", pathTo(next[0], ranks))
	require.Equal(t, "tcp", pathTo(next[0], 1))
}

// leaver is a link whose peer has left.
type leaver struct{ transport.Link }

func (l leaver) Err() error { return fault.Peer(fault.Aborted, 1, "of a test") }

// TestLeftAtOnce has a peer leave as soon as all have joined, before the word of that has come:
// this rank has joined. If it does not come, it has not.
func TestLeftAtOnce(t *testing.T) {
	for _, comes := range []bool{true, false} {
		word := make(chan struct{}, 1)
		j := &joining{size: 2, links: []transport.Link{nil, leaver{}}, errs: make([]error, 2),
			lost: map[int]*fault.Error{}, dead: map[int]*fault.Error{}}
		if comes {
			time.AfterFunc(lastLinks/3, func() { word <- struct{}{} })
		}
		err := j.await(t.Context(), word)
		require.Equal(t, comes, err == nil, err)
	}
}
