package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
)

const (
	sharedName  = "goccl-test-shared"
	sharedBytes = 4096
)

// sharedNow counts the descriptors of shared memory in this process.
func sharedNow(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.Contains(to, "memfd:"+sharedName) {
			n++
		}
	}
	return n
}

// segments makes memory to share, that begins with a text.
func segments(n int, text string) (all []*mem.Segment, fds []int, err error) {
	for i := range n {
		s, err := mem.NewSegment(sharedName, sharedBytes)
		if err != nil {
			return nil, nil, err
		}
		copy(s.Bytes(), fmt.Sprint(text, i))
		all, fds = append(all, s), append(fds, s.FD())
	}
	return all, fds, nil
}

// starts checks that the memory of a descriptor begins with a text. It closes the descriptor.
func starts(fd int, text string) error {
	s, err := mem.MapSegment(fd, sharedBytes)
	if err := errors.Join(err, syscall.Close(fd)); err != nil {
		return err
	}
	defer s.Free()
	if got := string(s.Bytes()[:len(text)]); got != text {
		return fmt.Errorf("the memory begins with %q, want %q", got, text)
	}
	return nil
}

// joinSharing is join for ranks that share: rank r has share[r].
func joinSharing(t *testing.T, all []*ccl.Node, opts ccl.GroupOptions, share []ccl.Config) (
	[]*ccl.Communicator, []error) {
	t.Helper()
	endpoints, addresses := openSharing(t, all, opts, share)
	comms, errs := make([]*ccl.Communicator, len(share)), make([]error, len(share))
	each(t, len(share), func(rank int) error {
		comms[rank], errs[rank] = endpoints[rank].Join(background, addresses)
		return nil
	})
	return comms, errs
}

func openSharing(t *testing.T, all []*ccl.Node, opts ccl.GroupOptions, share []ccl.Config) ([]*ccl.Endpoint, [][]byte) {
	t.Helper()
	ranks := len(share)
	endpoints, addresses := make([]*ccl.Endpoint, ranks), make([][]byte, ranks)
	for rank, cfg := range share {
		var err error
		cfg.Name, cfg.Rank, cfg.Size, cfg.Options = "sharing", rank, ranks, opts
		endpoints[rank], err = all[rank%len(all)].Open(cfg)
		require.NoError(t, err)
		addresses[rank] = endpoints[rank].Address()
	}
	return endpoints, addresses
}

// TestShared has each rank share another number of descriptors, and a note, with ranks of the same
// process and of others. By TCP nothing arrives.
func TestShared(t *testing.T) {
	const ranks = 5 // some of them are no neighbours
	for _, kind := range allTransports {
		t.Run(kind, func(t *testing.T) {
			before := sharedNow(t)
			opts, processes := ccl.GroupOptions{Transport: kind}, ranks
			if kind == "inproc" {
				opts, processes = ccl.GroupOptions{}, 1
			}
			all := nodesFor(t, processes, opts.Transport)
			share, owned := make([]ccl.Config, ranks), 0
			for rank := range share {
				owners, fds, err := segments(rank%(transport.MaxShare+1), fmt.Sprint("memory of ", rank, " "))
				require.NoError(t, err)
				for _, s := range owners {
					t.Cleanup(func() { s.Free() })
				}
				owned += len(fds)
				share[rank] = ccl.Config{Share: fds, Note: []byte(fmt.Sprint("note of ", rank))}
			}
			comms, errs := joinSharing(t, all, opts, share)
			require.NoError(t, errors.Join(errs...))
			each(t, ranks, func(rank int) error {
				for peer := range ranks {
					note, fds := comms[rank].Shared(peer)
					if peer == rank || kind == "tcp" || kind == "rdma" {
						if note != nil || fds != nil {
							return fmt.Errorf("rank %d shares %q and %d descriptors", peer, note, len(fds))
						}
						continue
					}
					if string(note) != string(share[peer].Note) || len(fds) != len(share[peer].Share) {
						return fmt.Errorf("rank %d shares %q and %d descriptors", peer, note, len(fds))
					}
					for i, fd := range fds {
						if err := starts(fd, fmt.Sprint("memory of ", peer, " ", i)); err != nil {
							return fmt.Errorf("rank %d: %w", peer, err)
						}
					}
					if _, fds := comms[rank].Shared(peer); len(fds) != 0 {
						return errors.New("descriptors for the second time")
					}
				}
				return nil
			})
			require.Equal(t, before+owned, sharedNow(t))
			note, fds := comms[0].Shared(ranks)
			require.True(t, note == nil && fds == nil, "no such rank")
			checkGroup(t, comms)

			// A smaller group shares nothing: the descriptors may be others by then.
			next := make([]*ccl.Communicator, ranks)
			each(t, ranks-1, func(rank int) (err error) {
				next[rank], _, err = comms[rank].Shrink(background, ranks-1)
				return err
			})
			for peer := range ranks - 1 {
				note, fds := next[0].Shared(peer)
				require.True(t, len(note) == 0 && len(fds) == 0, "rank %d shares %q and %v", peer, note, fds)
			}

			// Those that nobody asks for are closed with the group.
			comms, errs = joinSharing(t, all, opts, share)
			require.NoError(t, errors.Join(errs...))
			if kind != "tcp" && kind != "rdma" {
				require.Equal(t, before+owned*ranks, sharedNow(t))
			}
			for _, c := range comms {
				require.NoError(t, c.Close())
			}
			require.Equal(t, before+owned, sharedNow(t))
		})
	}
}

// TestSharedAlike has some ranks share, and some not; others share too much.
func TestSharedAlike(t *testing.T) {
	opts := ccl.GroupOptions{Transport: "shm"}
	all := nodesFor(t, 2, opts.Transport)
	_, errs := joinSharing(t, all, opts, []ccl.Config{{Note: []byte("x")}, {}})
	for _, err := range errs {
		require.ErrorIs(t, err, ccl.Mismatch)
		require.ErrorContains(t, err, "shared descriptors")
	}
	for _, cfg := range []ccl.Config{
		{Share: make([]int, transport.MaxShare+1)}, {Share: []int{-1}}, {Note: make([]byte, transport.MaxNote+1)}} {
		cfg.Size = 1
		_, err := all[0].Open(cfg)
		require.ErrorIs(t, err, ccl.Invalid)
	}
	// A descriptor that is not open: that rank does not join, and the other one waits for it.
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	endpoints, addresses := openSharing(t, all, opts, []ccl.Config{{Share: []int{1 << 30}}, {Note: []byte("x")}})
	each(t, 2, func(rank int) error {
		_, errs[rank] = endpoints[rank].Join(ctx, addresses)
		if rank == 0 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, errs[0], ccl.Invalid)
	require.ErrorContains(t, errs[0], "cannot share")
	require.Error(t, errs[1])
}

// shareChild is rank 1 of a group of two, in a process of its own: it shares one piece of memory,
// and writes into the second one of rank 0.
func shareChild() error {
	node, err := ccl.NewNode(ccl.NodeOptions{})
	if err != nil {
		return err
	}
	defer node.Close()
	_, fds, err := segments(1, "child ")
	if err != nil {
		return err
	}
	cfg := ccl.Config{Name: "two", Rank: 1, Size: 2, Share: fds, Note: []byte("by the child")}
	c, err := meetAs(node, cfg, os.Stdin, func(address []byte) { fmt.Printf("%s\n", address) })
	if err != nil {
		return err
	}
	note, fds := c.Shared(0)
	if string(note) != "by the parent" || len(fds) != 2 {
		return fmt.Errorf("the parent shares %q and %d descriptors", note, len(fds))
	}
	second, err := mem.MapSegment(fds[1], sharedBytes)
	if err != nil {
		return err
	}
	copy(second.Bytes(), "the child was here")
	if err := errors.Join(starts(fds[0], "parent 0"), ccl.Barrier(background, c)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent has looked
	return err
}

// TestSharedBetweenProcesses shares memory with another process, in both directions.
func TestSharedBetweenProcesses(t *testing.T) {
	before := sharedNow(t)
	program, err := os.Executable()
	require.NoError(t, err)
	node, err := ccl.NewNode(ccl.NodeOptions{})
	require.NoError(t, err)
	defer node.Close()
	mine, fds, err := segments(2, "parent ")
	require.NoError(t, err)
	cmd := exec.Command(program, childArgument, "share")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	hangs := time.AfterFunc(deadline, func() { cmd.Process.Kill() })
	defer hangs.Stop()
	defer cmd.Wait()
	defer cmd.Process.Kill()
	cfg := ccl.Config{Name: "two", Rank: 0, Size: 2, Share: fds, Note: []byte("by the parent")}
	c, err := meetAs(node, cfg, out.(*os.File), func(address []byte) { fmt.Fprintf(in, "%s\n", address) })
	require.NoError(t, err)
	for _, s := range mine {
		require.NoError(t, s.CloseFD()) // the child has copies
	}
	require.NoError(t, ccl.Barrier(background, c))
	require.True(t, strings.HasPrefix(string(mine[1].Bytes()), "the child was here"))
	note, fds := c.Shared(1)
	require.Equal(t, "by the child", string(note))
	require.Len(t, fds, 1)
	require.NoError(t, cmd.Process.Kill()) // the memory stays
	require.NoError(t, starts(fds[0], "child 0"))
	require.NoError(t, node.Close())
	for _, s := range mine {
		require.NoError(t, s.Free())
	}
	require.Equal(t, before, sharedNow(t))
}
