package shm

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
	"github.com/stretchr/testify/require"
)

const childArgument = "shm-test-child"

func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] == childArgument {
		child()
		return
	}
	os.Exit(m.Run())
}

var childSizes = []int{20, 2000, ring.LeaseBytes}

// child joins two sessions with the process whose address it reads from its input, sends on the
// first session, and lives until its input ends.
func child() {
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	f, err := New(Options{PoolBytes: 1 << 20})
	check(err)
	fmt.Println(hex.EncodeToString(f.Address()))
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	parent, err := hex.DecodeString(in.Text())
	check(err)
	var links [2]transport.Link
	for i := range links {
		links[i], err = f.Connect(ctx, parent, session(i, 7, 3, 1))
		check(err)
	}
	for i, n := range childSizes {
		space := links[0].Channel(0).Reserve(n)
		for k := range space {
			space[k] = byte(i)
		}
		links[0].Channel(0).Commit(n, &transport.Meta{uint64(n)})
	}
	fmt.Println("ready")
	for in.Scan() {
	}
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// TestKilledPeer kills a process with SIGKILL. Its links report that within a second, sleepers
// wake, the fragments it had sent can be read, and none of its memory stays.
func TestKilledPeer(t *testing.T) {
	for range 2 { // the ids are random: in most runs each side dials once
		f := newFabric(t)
		before := holdingsNow(t)
		program, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(program, childArgument)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		out := bufio.NewReader(pipe)
		text, err := out.ReadString('\n')
		require.NoError(t, err)
		address, err := hex.DecodeString(strings.TrimSpace(text))
		require.NoError(t, err, text)
		fmt.Fprintln(in, hex.EncodeToString(f.Address()))
		var links [2]transport.Link
		for i := range links {
			links[i], err = f.Connect(within(t), address, session(i, 3, 7, 1))
			require.NoError(t, err)
		}
		text, err = out.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "ready\n", text)
		require.NoError(t, links[0].Err())

		woken := make(chan bool, 1)
		announced := make(chan struct{})
		go func() {
			ticket := f.Doorbell().Prepare()
			close(announced)
			failed := func() bool { return links[0].Err() != nil && links[1].Err() != nil }
			for deadline := time.Now().Add(span); !failed() &&
				time.Now().Before(deadline); ticket = f.Doorbell().Prepare() {
				f.Doorbell().Sleep(ticket, time.Until(deadline))
			}
			f.Doorbell().Cancel()
			woken <- failed()
		}()
		<-announced
		require.NoError(t, cmd.Process.Kill())
		killed := time.Now()
		require.True(t, <-woken, "nobody rang for the sleeper")
		require.Less(t, time.Since(killed), time.Second)
		cmd.Wait()
		for _, l := range links {
			var e *fault.Error
			require.ErrorAs(t, l.Err(), &e)
			require.Equal(t, fault.PeerLost, e.Code)
			require.Equal(t, 7, e.Peer)
			require.ErrorContains(t, e, fmt.Sprint("process ", cmd.Process.Pid))
		}
		for i, n := range childSizes {
			receive(t, links[0].Channel(0), n, byte(i))
		}
		_, _, ok := links[0].Channel(0).Peek()
		require.False(t, ok)
		send(t, links[1].Channel(0), ring.LeaseBytes, 1) // leads nowhere and does no harm

		_, err = f.Connect(within(t), address, session(9, 3, 7, 1))
		require.ErrorIs(t, err, fault.PeerLost)
		for _, l := range links {
			require.NoError(t, l.Close())
		}
		after := holdingsNow(t)
		require.Equal(t, before.rings, after.rings)
		require.Equal(t, before.doorbells, after.doorbells)
		require.Equal(t, before.pools+1, after.pools) // its own
		require.Equal(t, 4<<20/ring.LeaseBytes, f.pool.Free())
		require.NoError(t, f.Close())
		require.Less(t, holdingsNow(t).descriptors, before.descriptors)
	}
}
