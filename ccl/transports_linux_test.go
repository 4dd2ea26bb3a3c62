package ccl_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

// sockets counts the sockets of this process that accept connections, and the ends of TCP
// connections.
type sockets struct{ tcp, unix, ends int }

func socketsNow(t *testing.T) (s sockets) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var inodes []string
	for _, fd := range fds {
		to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if inode, found := strings.CutPrefix(to, "socket:["); found {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	count := func(file string, state, inode int, listens string) (n int) {
		text, err := os.ReadFile("/proc/self/net/" + file)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > max(state, inode) && f[state] == listens && slices.Contains(inodes, f[inode]) {
				n++
			}
		}
		return n
	}
	return sockets{count("tcp", 3, 9, "0A") + count("tcp6", 3, 9, "0A"), count("unix", 3, 6, "00010000"),
		count("tcp", 3, 9, "01") + count("tcp6", 3, 9, "01")}
}

// TestConnectsOnUse counts the connections of a group: those of neighbours while joining, others
// when two ranks first need each other, none for those that never do.
func TestConnectsOnUse(t *testing.T) {
	const ranks = 7
	before := socketsNow(t)
	// Each connection has two sockets with two ends each; one is made in the background.
	connected := func(connections int, which string) {
		t.Helper()
		require.Eventually(t, func() bool { return socketsNow(t).ends-before.ends == 2*2*connections },
			10*time.Second, time.Millisecond, which)
	}
	comms := join(t, nodesFor(t, ranks, "tcp"), ccl.GroupOptions{Transport: "tcp"}, "sparse")
	connected(ranks, "each rank and the next one")
	got := make([]float32, 3)
	each(t, ranks, func(rank int) error {
		switch rank {
		case 1:
			return ccl.Send(background, comms[1], []float32{1, 2, 3}, 5, 4)
		case 5:
			_, err := ccl.Recv(background, comms[5], got, 1, 4)
			return err
		}
		return nil
	})
	require.Equal(t, []float32{1, 2, 3}, got)
	connected(ranks+1, "two that are no neighbours")
	checkGroup(t, comms) // long all_reduces go around the ring
	connected(ranks+1, "no more of them")
	each(t, ranks, func(rank int) error { return ccl.Barrier(background, comms[rank]) }) // distances 1, 2 and 4
	connected(3*ranks, "those of a barrier")
}

// TestTransportsAsAsked checks which sockets listen when a group is open: only those that its
// options allow, and without that of goccl top.
func TestTransportsAsAsked(t *testing.T) {
	for _, tt := range []struct {
		transport string
		tcp, unix bool
	}{
		{"shm", false, true},
		{"tcp", true, false},
		{"auto", true, true},
	} {
		t.Run(tt.transport, func(t *testing.T) {
			before := socketsNow(t)
			opts := ccl.GroupOptions{Transport: tt.transport}
			all := nodes(t, 2, ccl.NodeOptions{NoTop: true})
			require.Equal(t, before, socketsNow(t), "nobody has asked for a transport yet")
			checkGroup(t, join(t, all, opts, "only"))
			now := socketsNow(t)
			require.Equal(t, tt.tcp, now.tcp > before.tcp, "TCP listeners: %d, before %d", now.tcp, before.tcp)
			require.Equal(t, tt.unix, now.unix > before.unix, "unix listeners: %d, before %d", now.unix, before.unix)
			for _, node := range all {
				require.NoError(t, node.Close())
			}
			require.Equal(t, before, socketsNow(t))
		})
	}
}

// checkGroup checks sums of a group, by an operation that is waited for and by operations that the
// progress thread must move.
func checkGroup(t *testing.T, comms []*ccl.Communicator) {
	t.Helper()
	const n = 100_000
	want := sums(len(comms), n, 0)
	each(t, len(comms), func(rank int) error {
		x := input(rank, n, 0)
		err := ccl.AllReduce(background, comms[rank], x, x, ccl.Sum)
		if err == nil {
			err = same(x, want)
		}
		if err != nil {
			return err
		}
		x = input(rank, n, 0)
		if err := posted(comms[rank], x, unattended); err != nil {
			return err
		}
		return same(x[:n/3*3], want[:n/3*3])
	})
}

// TestLaterGroupByAnotherTransport makes groups by all transports with the same Nodes, in different
// orders.
func TestLaterGroupByAnotherTransport(t *testing.T) {
	for _, order := range [][]string{{"shm", "tcp", "auto"}, {"tcp", "shm", "auto"}, {"auto", "shm", "tcp"}} {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			all := nodesFor(t, 2, order[0])
			var groups [][]*ccl.Communicator
			for _, transport := range order {
				groups = append(groups, join(t, all, ccl.GroupOptions{Transport: transport}, transport))
			}
			for _, comms := range groups {
				checkGroup(t, comms)
			}
		})
	}
}

// TestWithoutInterfaces runs itself in a network namespace where no interface is up: shared memory
// needs none.
func TestWithoutInterfaces(t *testing.T) {
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	if slices.ContainsFunc(interfaces, func(i net.Interface) bool { return i.Flags&net.FlagUp != 0 }) {
		program, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
		}
		said, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Skipf("no network namespace can be made: %v", err)
		}
		require.NoError(t, err, "%s", said)
		require.Contains(t, string(said), "--- PASS: "+t.Name()+"/auto", "the tests did not run in the namespace")
		return
	}
	for _, transport := range []string{"shm", "auto"} {
		t.Run(transport, func(t *testing.T) { checkGroup(t, group(t, transport, 3, ccl.GroupOptions{})) })
	}
	const nothing = "no network interface of this host is up and has an address"
	t.Run("tcp", func(t *testing.T) {
		node := nodes(t, 1, ccl.NodeOptions{})[0]
		_, err := node.Open(ccl.Config{Size: 2, Options: ccl.GroupOptions{Transport: "tcp"}})
		require.ErrorIs(t, err, ccl.NotSupported)
		require.ErrorContains(t, err, nothing)
	})
	t.Run("another host", func(t *testing.T) {
		var endpoints []*ccl.Endpoint
		var addresses [][]byte
		for rank, node := range nodes(t, 2, ccl.NodeOptions{}) {
			endpoint, err := node.Open(ccl.Config{Rank: rank, Size: 2})
			require.NoError(t, err)
			var address map[string]any
			require.NoError(t, json.Unmarshal(endpoint.Address(), &address))
			if rank == 1 {
				delete(address["fabrics"].(map[string]any), "shm")
			}
			text, err := json.Marshal(address)
			require.NoError(t, err)
			endpoints, addresses = append(endpoints, endpoint), append(addresses, text)
		}
		_, err := endpoints[0].Join(background, addresses)
		require.ErrorIs(t, err, ccl.NotSupported)
		require.ErrorContains(t, err, "no transport reaches it")
		require.ErrorContains(t, err, "without tcp")
		require.ErrorContains(t, err, nothing)
	})
}
