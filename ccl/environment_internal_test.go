package ccl

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

func TestOptionsFrom(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		want    string // the text form
		err     string
	}{
		"nothing": {environ: []string{"HOME=/root", "GOCC=1"}},
		"some": {environ: []string{"GOCCL_DEBUG=INFO", "GOCCL_ALGO= all_reduce=ring "},
			want: "GOCCL_ALGO=all_reduce=ring\nGOCCL_DEBUG=INFO\n"},
		"an empty one":  {environ: []string{"GOCCL_DEBUG="}},
		"misspelled":    {environ: []string{"GOCCL_ALGRO=x"}, err: "unknown option GOCCL_ALGRO; did you mean GOCCL_ALGO?"},
		"a wrong value": {environ: []string{"GOCCL_TRANSPORT=udp"}, err: "GOCCL_TRANSPORT=udp"},
		"two lines":     {environ: []string{"GOCCL_DEBUG=INFO\nGOCCL_TLS=1"}, err: "a value has one line"},
		"of Kubernetes": {environ: []string{"GOCCL_SERVICE_HOST=10.0.0.1", "GOCCL_TLS=1"}, want: "GOCCL_TLS=1\n"},
		"of NCCL": {environ: []string{"NCCL_SOCKET_IFNAME= ^lo", "GLOO_SOCKET_IFNAME=eth1", "NCCL_IB_HCA=mlx5"},
			want: "GOCCL_IB_HCA=mlx5\nGOCCL_SOCKET_IFNAME=NCCL_SOCKET_IFNAME=^lo\n"},
		"of Gloo": {environ: []string{"NCCL_SOCKET_IFNAME= ", "GLOO_SOCKET_IFNAME=eth1", "NCCL_IB_GID_INDEX=3"},
			want: "GOCCL_IB_GID_INDEX=3\nGOCCL_SOCKET_IFNAME=GLOO_SOCKET_IFNAME=eth1\n"},
		"one's own first": {environ: []string{"NCCL_SOCKET_IFNAME=eth1", "GOCCL_SOCKET_IFNAME=eth0", "GOCCL_IB_HCA=",
			"NCCL_IB_HCA=mlx5"}, want: "GOCCL_IB_HCA=mlx5\nGOCCL_SOCKET_IFNAME=eth0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			opts, err := optionsFrom(c.environ)
			if c.err != "" {
				require.ErrorIs(t, err, fault.Invalid)
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, opts.String())
		})
	}
}

func TestJobFrom(t *testing.T) {
	well := map[string]string{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
	for name, c := range map[string]struct {
		set  string // "NAME=value", of those that differ
		want job
		err  string
	}{
		"as it should be": {want: job{rank: 1, size: 2, host: "node0", port: "29500"}},
		"torchrun": {set: "TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=2",
			want: job{rank: 1, size: 2, host: "node0", port: "29500", agent: true, prefix: "//worker/attempt_2/"}},
		"torchrun without its store": {set: "TORCHELASTIC_USE_AGENT_STORE=False",
			want: job{rank: 1, size: 2, host: "node0", port: "29500"}},
		"no launcher":   {set: "RANK=", err: "RANK is not set: a launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"},
		"no size":       {set: "WORLD_SIZE=", err: "WORLD_SIZE is not set: "},
		"no address":    {set: "MASTER_ADDR=", err: "MASTER_ADDR is not set: "},
		"no port":       {set: "MASTER_PORT=", err: "MASTER_PORT is not set: "},
		"rank too high": {set: "RANK=2", err: `RANK="2", wanted is a number from 0 to 1`},
		"no number":     {set: "RANK=a", err: `RANK="a", wanted is a number from 0 to 1`},
		"no ranks":      {set: "WORLD_SIZE=0", err: `WORLD_SIZE="0", wanted is a number from 1 to 65536`},
		"port too high": {set: "MASTER_PORT=65536", err: `MASTER_PORT="65536", wanted is a number from 1 to 65535`},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := jobFrom(func(name string) string {
				for pair := range strings.FieldsSeq(c.set) {
					if key, value, _ := strings.Cut(pair, "="); key == name {
						return value
					}
				}
				return well[name]
			})
			if c.err != "" {
				require.ErrorIs(t, err, fault.Invalid)
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, j)
		})
	}
}

func TestListenAt(t *testing.T) {
	for host, want := range map[string]string{"127.0.0.1": "127.0.0.1:7", "localhost": "localhost:7", "::1": "[::1]:7",
		"node0": ":7", "10.0.0.1": ":7"} {
		j := job{host: host, port: "7"}
		require.Equal(t, want, j.listenAt())
	}
}

// ranksOf returns the jobs of n ranks of this process, which meet at a free port.
func ranksOf(t *testing.T, n int) []job {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())
	all := make([]job, n)
	for rank := range all {
		all[rank] = job{rank: rank, size: n, host: "127.0.0.1", port: strconv.Itoa(port)}
	}
	return all
}

func initAll(ctx context.Context, ranks []job, opts func(rank int) Options) ([]*Communicator, []error) {
	comms, errs := make([]*Communicator, len(ranks)), make([]error, len(ranks))
	var group sync.WaitGroup
	for i := range ranks {
		group.Go(func() { comms[i], errs[i] = ranks[i].join(ctx, opts(ranks[i].rank)) })
	}
	group.Wait()
	return comms, errs
}

// TestInit has the ranks meet, fail, and meet again at the same port. The Node of a group closes
// with it, and not before the group that it has shrunk to.
func TestInit(t *testing.T) {
	ranks := ranksOf(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plain := func(int) Options { return Options{} }
	for range 2 {
		_, errs := initAll(ctx, ranks[1:], func(int) Options {
			return Options{GroupOptions: GroupOptions{Timeout: 200 * time.Millisecond}}
		})
		for _, err := range errs {
			require.ErrorIs(t, err, Timeout)
			require.ErrorContains(t, err, "rank 0 has not come to 127.0.0.1:")
		}
		comms, errs := initAll(ctx, ranks, plain)
		require.NoError(t, errors.Join(errs...))
		var group sync.WaitGroup
		for rank, c := range comms {
			group.Go(func() {
				x := []int64{1 << rank}
				if err := AllReduce(ctx, c, x, x, Sum); err != nil || x[0] != 7 {
					t.Error(err, x)
				}
			})
		}
		group.Wait()
		require.NoError(t, comms[2].Close())
		require.True(t, comms[2].node.closed)
		smaller := make([]*Communicator, 2)
		for rank := range smaller {
			group.Go(func() {
				var err error
				if smaller[rank], _, err = comms[rank].Shrink(ctx, 2); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for rank, c := range smaller {
			require.NoError(t, comms[rank].Close())
			require.False(t, c.Node().closed)
			group.Go(func() {
				if err := Barrier(ctx, c); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for _, c := range smaller {
			require.NoError(t, c.Close())
			require.True(t, c.Node().closed)
			require.NoError(t, c.Close())
		}
	}
}

// TestInitFails has one rank that cannot join, and one that does not come: all say so.
func TestInitFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, errs := initAll(ctx, ranksOf(t, 3), func(rank int) Options {
		o := Options{}
		if rank == 1 {
			o.Plan = "/there/is/none.json"
		}
		return o
	})
	for rank, err := range errs {
		require.ErrorContains(t, err, "/there/is/none.json", "rank %d", rank)
		if rank != 1 {
			require.ErrorIs(t, err, PeerLeft)
			require.ErrorContains(t, err, "rank 1")
		}
	}
	short, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	_, errs = initAll(short, ranksOf(t, 3)[:2], func(int) Options { return Options{} })
	for rank, err := range errs {
		require.ErrorIs(t, err, Timeout)
		require.ErrorContains(t, err, "rank 2 (of 3) did not come to group world", "rank %d", rank)
		require.ErrorContains(t, err, "failed before the call of ccl.Init")
	}
	tired, stop := context.WithCancelCause(ctx)
	time.AfterFunc(50*time.Millisecond, func() { stop(errors.New("enough")) })
	_, errs = initAll(tired, ranksOf(t, 2)[1:], func(int) Options { return Options{} })
	require.ErrorIs(t, errs[0], Aborted)
	require.ErrorContains(t, errs[0], "its context ended while it waited for rank 0: enough")
	taken := ranksOf(t, 2)[0]
	other, err := net.Listen("tcp", taken.address())
	require.NoError(t, err)
	defer other.Close()
	_, err = taken.join(ctx, Options{})
	require.ErrorContains(t, err, "rank 0 cannot wait for the others at "+taken.address()+" (MASTER_ADDR, MASTER_PORT)")
}

func TestInitAlone(t *testing.T) {
	c, err := (&job{size: 1, host: "nowhere", port: "1"}).join(t.Context(), Options{})
	require.NoError(t, err)
	require.NoError(t, Barrier(t.Context(), c))
	require.NoError(t, c.Close())
}
