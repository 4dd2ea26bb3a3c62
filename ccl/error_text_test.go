package ccl_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

func recvCall(n int, peer int, tag uint32) *ccl.Call {
	x := make([]float32, n)
	return &ccl.Call{Coll: dtype.Recv, Type: dtype.F32, Root: peer, Tag: tag,
		Out: []ccl.Block{{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Count: n}}}
}

func sendCall(n int, peer int, tag uint32) *ccl.Call {
	call := recvCall(n, peer, tag)
	call.Coll, call.In, call.Out = dtype.Send, call.Out, nil
	return call
}

// Every error of an operation names the group, the rank that has it, the operation, its size and
// its number, whichever way it fails.
func TestErrorsNameTheOperation(t *testing.T) {
	sum := func(n int) *ccl.Call { return allReduceCall(make([]float32, n)) }
	start := func(t *testing.T, c *ccl.Communicator, call *ccl.Call) *ccl.Work {
		work, err := c.Start(call)
		require.NoError(t, err)
		t.Cleanup(work.Free)
		return work
	}
	late := func(c *ccl.Communicator) { c.SetTimeout(50 * time.Millisecond) }
	cases := map[string]struct {
		provoke func(t *testing.T, c, peer *ccl.Communicator) error
		class   error
		parts   []string
	}{
		"timeout": {func(t *testing.T, c, _ *ccl.Communicator) error {
			late(c)
			return c.Do(background, sum(10))
		}, ccl.Timeout, []string{"all_reduce of 10 x f32 (sum), seq 1: timeout (rank 1)"}},
		"behind one that fails": {func(t *testing.T, c, _ *ccl.Communicator) error {
			late(c)
			start(t, c, sum(10))
			c.SetTimeout(deadline)
			return start(t, c, sum(20)).Wait(background)
		}, ccl.Timeout, []string{"all_reduce of 20 x f32 (sum), seq 2: timeout (rank 1)",
			"the group failed in all_reduce of 10 x f32 (sum), seq 1: rank 1"}},
		"a message beside one that fails": {func(t *testing.T, c, _ *ccl.Communicator) error {
			work := start(t, c, recvCall(7, 1, 3))
			late(c)
			start(t, c, sum(10))
			return work.Wait(background)
		}, ccl.Timeout, []string{"recv of 7 x f32 from rank 1, tag 3, seq 1: timeout",
			"the group failed in all_reduce of 10 x f32 (sum), seq 1"}},
		"after one that failed": {func(t *testing.T, c, _ *ccl.Communicator) error {
			late(c)
			require.Error(t, c.Do(background, sum(10)))
			return c.Do(background, sum(20))
		}, ccl.Timeout, []string{"all_reduce of 20 x f32 (sum), not begun, after seq 1: timeout (rank 1)",
			"the group failed in all_reduce of 10 x f32 (sum), seq 1"}},
		"a message that does not come": {func(t *testing.T, c, _ *ccl.Communicator) error {
			late(c)
			require.Error(t, c.Do(background, recvCall(5, 1, 8)))
			return c.Do(background, recvCall(5, 1, 9))
		}, ccl.Timeout, []string{
			"recv of 5 x f32 from rank 1, tag 9, seq 2: timeout (rank 1): rank 1 is in no call, and " +
				"has not made one yet; rank 0 waits for 1 (the message has not come)"}},
		"a message of another size": {func(t *testing.T, c, peer *ccl.Communicator) error {
			start(t, peer, sendCall(4, 0, 2))
			return c.Do(background, recvCall(5, 1, 2))
		}, ccl.Mismatch, []string{"recv of 5 x f32 from rank 1, tag 2, seq 1: mismatch (rank 1)",
			"20 bytes", "16 bytes"}},
		"abort": {func(t *testing.T, c, _ *ccl.Communicator) error {
			work := start(t, c, sum(10))
			c.Abort("enough")
			return work.Wait(background)
		}, ccl.Aborted, []string{"all_reduce of 10 x f32 (sum), seq 1: aborted: enough"}},
		"abort of a message": {func(t *testing.T, c, _ *ccl.Communicator) error {
			work := start(t, c, recvCall(5, ccl.AnySource, 0))
			c.Abort("enough")
			return work.Wait(background)
		}, ccl.Aborted, []string{"recv of 5 x f32 from any rank, tag 0, seq 1: aborted: enough"}},
		"after abort": {func(t *testing.T, c, _ *ccl.Communicator) error {
			c.Abort("enough")
			return c.Do(background, sum(10))
		}, ccl.Aborted, []string{"all_reduce of 10 x f32 (sum), not begun, after seq 0: aborted: enough"}},
		"close": {func(t *testing.T, c, _ *ccl.Communicator) error {
			work := start(t, c, sum(10))
			require.NoError(t, c.Close())
			return work.Wait(background)
		}, ccl.Closed, []string{"all_reduce of 10 x f32 (sum), seq 1: closed"}},
		"a peer that left": {func(t *testing.T, c, peer *ccl.Communicator) error {
			require.NoError(t, peer.Close())
			return c.Do(background, sum(10))
		}, ccl.PeerLeft, []string{"all_reduce of 10 x f32 (sum), seq 1: peer left (rank 1)"}},
		"a message to a peer that left": {func(t *testing.T, c, peer *ccl.Communicator) error {
			require.NoError(t, peer.Close())
			return c.Do(background, recvCall(5, 1, 0))
		}, ccl.PeerLeft, []string{"recv of 5 x f32 from rank 1, tag 0, seq 1: peer left (rank 1)"}},
		"a wrong argument": {func(t *testing.T, c, _ *ccl.Communicator) error {
			return ccl.Broadcast(background, c, make([]float32, 3), 2)
		}, ccl.Invalid, []string{"broadcast: root 2 is not a rank of a group of 2"}},
	}
	for _, transport := range allTransports {
		for name, test := range cases {
			t.Run(transport+"/"+name, func(t *testing.T) {
				comms := group(t, transport, 2, ccl.GroupOptions{})
				err := make(chan error, 1)
				go func() { err <- test.provoke(t, comms[0], comms[1]) }()
				select {
				case err := <-err:
					require.ErrorIs(t, err, test.class)
					for _, part := range append(test.parts, "goccl: group ", ", rank 0 of 2: ") {
						require.ErrorContains(t, err, part)
					}
				case <-time.After(deadline):
					t.Fatal("HANG")
				}
			})
		}
	}
}
