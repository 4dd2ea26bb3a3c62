package ccl_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
)

func TestFastBF16Text(t *testing.T) {
	for text, want := range map[string]bool{"": false, "0": false, "1": true} {
		opts, err := ccl.ParseOptions("GOCCL_FAST_BF16=" + text)
		require.NoError(t, err)
		require.Equal(t, want, opts.FastBF16)
		back, err := ccl.ParseOptions(opts.String())
		require.NoError(t, err)
		require.Equal(t, opts, back)
	}
	_, err := ccl.ParseOptions("GOCCL_FAST_BF16=yes")
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorContains(t, err, "GOCCL_FAST_BF16=yes: want 0 or 1")
}

// Subnormal sums show which kernels run: in a group either all ranks use the fast ones, or none.
func TestFastBF16IsUsedWhereAllRanksHaveIt(t *testing.T) {
	for _, tt := range []struct {
		asked, lacking bool
	}{{false, false}, {true, false}, {true, true}} {
		for _, ranks := range []int{2, 4} {
			t.Run(fmt.Sprintf("asked=%v/lacking=%v/%d", tt.asked, tt.lacking, ranks), func(t *testing.T) {
				opts := ccl.GroupOptions{FastBF16: tt.asked}
				all := nodesFor(t, ranks, opts.Transport)
				endpoints, addresses := make([]*ccl.Endpoint, ranks), make([][]byte, ranks)
				for rank, node := range all {
					e, err := node.Open(ccl.Config{Name: "test", Rank: rank, Size: ranks, Options: opts})
					require.NoError(t, err)
					endpoints[rank], addresses[rank] = e, e.Address()
					require.Equal(t, tt.asked && kernel.HasFastBF16(),
						bytes.Contains(addresses[rank], []byte(`"bf16":true`)))
				}
				if tt.lacking {
					addresses[ranks-1] = bytes.Replace(addresses[ranks-1],
						[]byte(`"bf16":true`), []byte(`"bf16":false`), 1)
				}
				comms := make([]*ccl.Communicator, ranks)
				each(t, ranks, func(rank int) (err error) {
					ctx, cancel := context.WithTimeout(context.Background(), deadline)
					defer cancel()
					comms[rank], err = endpoints[rank].Join(ctx, addresses)
					return err
				})
				want := uint16(ranks) // times the smallest subnormal
				if tt.asked && !tt.lacking && kernel.HasFastBF16() {
					want = 0
				}
				for _, count := range []int{5, 3000, 200_000} {
					for _, op := range []dtype.Op{dtype.Sum, dtype.PremulSum} {
						x := make([][]uint16, ranks)
						each(t, ranks, func(rank int) error {
							x[rank] = make([]uint16, count)
							for i := range x[rank] {
								x[rank][i] = 1
							}
							block := []ccl.Block{{Ptr: unsafe.Pointer(&x[rank][0]), Count: count}}
							return comms[rank].Do(background, &ccl.Call{Coll: dtype.AllReduce, Type: dtype.BF16,
								Op: op, Factor: 1, In: block, Out: block})
						})
						for rank := range x {
							for i, got := range x[rank] {
								if got != want {
									t.Fatalf("rank %d, %v of %d, element %d: %#x, want %#x",
										rank, op, count, i, got, want)
								}
							}
						}
					}
				}
				each(t, ranks, func(rank int) error { return comms[rank].Close() })
			})
		}
	}
}

func TestFastBF16IsAgreed(t *testing.T) {
	all := nodes(t, 2, ccl.NodeOptions{})
	var addresses [][]byte
	var endpoints []*ccl.Endpoint
	for rank, node := range all {
		e, err := node.Open(ccl.Config{Name: "test", Rank: rank, Size: 2,
			Options: ccl.GroupOptions{FastBF16: rank == 0}})
		require.NoError(t, err)
		endpoints, addresses = append(endpoints, e), append(addresses, e.Address())
	}
	for _, e := range endpoints {
		_, err := e.Join(context.Background(), addresses)
		require.ErrorIs(t, err, fault.Mismatch)
		require.ErrorContains(t, err, "GOCCL_FAST_BF16=1")
	}
}
