package netlab_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/netlab"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/tcp"
)

// rank is one of two processes that are linked by TCP.
type rank struct {
	fabric   *tcp.Fabric
	doorbell *park.Doorbell
	link     transport.Link
	ctx      context.Context
}

// ranked reads FOLDER/RANK.
func ranked(t *testing.T, text string) (folder string, number int) {
	folder, name := filepath.Split(text)
	number, err := strconv.Atoi(name)
	require.NoError(t, err)
	return folder, number
}

// newRank joins the other rank. Both write their addresses into the folder.
func newRank(t *testing.T, folder string, number int, o tcp.Options) *rank {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	r := &rank{doorbell: park.NewDoorbell(), ctx: ctx}
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	o.Doorbell, o.Info, o.Warn = r.doorbell, say, say
	var err error
	r.fabric, err = tcp.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { r.fabric.Close() })
	tell(t, filepath.Join(folder, fmt.Sprint("address", number)), r.fabric.Address())
	peer := r.hear(t, filepath.Join(folder, fmt.Sprint("address", 1-number)))
	r.link, err = r.fabric.Connect(ctx, peer, transport.Session{Rank: number, Peer: 1 - number, Channels: 1})
	require.NoError(t, err)
	return r
}

// tell writes a file as a whole.
func tell(t *testing.T, file string, text []byte) {
	require.NoError(t, os.WriteFile(file+".new", text, 0o644))
	require.NoError(t, os.Rename(file+".new", file))
}

// hear waits for a file.
func (r *rank) hear(t *testing.T, file string) (text []byte) {
	require.Eventually(t, func() (there bool) {
		var err error
		text, err = os.ReadFile(file)
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	return text
}

// exchange sends 2 MiB to the other rank, and receives as much.
func (r *rank) exchange(t *testing.T) {
	const total = 2 << 20
	ch := r.link.Channel(0)
	for sent, received := 0, 0; sent < total || received < total; {
		require.NoError(t, r.ctx.Err())
		ticket := r.doorbell.Prepare()
		r.fabric.Arm()
		moved := r.fabric.Poll()
		if space := ch.Reserve(min(64<<10, total-sent)); sent < total && space != nil {
			ch.Commit(len(space), &transport.Meta{})
			sent += len(space)
			moved = true
		}
		if payload, _, ok := ch.Peek(); ok {
			received += len(payload)
			ch.Release()
			moved = true
		}
		if moved {
			r.doorbell.Cancel()
			continue
		}
		require.NoError(t, r.link.Err()) // the peer may have left, but not before everything has arrived
		r.doorbell.Sleep(ticket, time.Second)
	}
}

var (
	pathFlag  = flag.String("hosts.path", "", "FOLDER/RANK: be a rank of the tests of paths")
	pairsFlag = flag.Int("hosts.pairs", 2, "how many pairs TestOneWay has of each kind")
	againFlag = flag.Bool("hosts.again", false, "exchange data a second time, once there is a file FOLDER/again")
)

// TestRankOfPath is a process of the tests below.
func TestRankOfPath(t *testing.T) {
	if *pathFlag == "" {
		return // it runs as a process of the other tests only
	}
	folder, number := ranked(t, *pathFlag)
	r := newRank(t, folder, number, tcp.Options{PeerTimeout: 4 * time.Second, Interfaces: "^lo"})
	r.exchange(t)
	if *againFlag {
		tell(t, filepath.Join(folder, fmt.Sprint("ready", number)), nil)
		r.hear(t, filepath.Join(folder, "again"))
		r.exchange(t)
	}
	require.NoError(t, r.link.Close())
	require.NoError(t, r.fabric.Close())
	fmt.Printf("rank %d is right\n", number)
}

// pair has two ranks, one a host, run together, and other lines of the script beside them; FOLDER
// is theirs. Lines before can set DELAY0 and DELAY1, after which they begin. It returns what all of
// them have said.
func pair(t *testing.T, wire, before, beside string, more ...string) string {
	folder := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	var text strings.Builder
	text.WriteString("FOLDER=" + folder + "\n" + before + "\n")
	for n := range 2 {
		fmt.Fprintf(&text, "(sleep ${DELAY%d:-0}; exec ip netns exec host%d %s -test.run ^TestRankOfPath$ "+
			"-hosts.path %s/%d %s) &\n", n, n, self, folder, n, strings.Join(more, " "))
		fmt.Fprintf(&text, "R%d=$!\n", n)
	}
	text.WriteString(beside + "\nwait $R0\nwait $R1\n")
	said := script(t, []string{wire}, text.String())
	require.Contains(t, said, "rank 0 is right")
	require.Contains(t, said, "rank 1 is right")
	return said
}

// TestOddAddresses has hosts whose only way to each other is by an address that others would leave
// out.
func TestOddAddresses(t *testing.T) {
	both := func(lines ...string) string {
		var text strings.Builder
		for host, n := range []string{"1", "2"} {
			for _, line := range append([]string{"ip -n HOST addr flush dev eth0"}, lines...) {
				line = strings.ReplaceAll(line, "HOST", netlab.Host(host))
				text.WriteString(strings.ReplaceAll(line, "NUMBER", n) + "\n")
			}
		}
		return text.String()
	}
	for _, tt := range []struct{ name, before, says string }{
		{"link-local", both("ip -n HOST addr add 169.254.1.NUMBER/16 dev eth0"), ""},
		{"a bridge, and an interface that leads nowhere", both("ip -n HOST link add br-ex type bridge",
			"ip -n HOST link set br-ex up", "ip -n HOST link set eth0 master br-ex",
			"ip -n HOST addr add 10.8.0.NUMBER/24 dev br-ex", "ip -n HOST link add mp0 type veth peer name mp1",
			"ip -n HOST link set mp0 up", "ip -n HOST link set mp1 up",
			"ip -n HOST addr add 10.128.NUMBER.2/24 dev mp0"), ""},
		{"40 addresses that both have, before the right one", both(
			"for i in $(seq 40); do ip -n HOST addr add 10.96.32.$i/32 dev eth0; done",
			"ip -n HOST addr add 10.77.0.NUMBER/24 dev eth0"), "this host has 41 addresses, of which 32 are used"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, pair(t, "plain", tt.before, ""), tt.says)
		})
	}
}

// TestOneWay has a firewall between two hosts, which lets only one of them open connections. Which
// side dials first is chance, so there are some pairs at the same time, which begin at random
// moments.
func TestOneWay(t *testing.T) {
	for _, wire := range []string{"drop=0", "drop=1", "refuse=0", "refuse=1"} {
		for range *pairsFlag {
			t.Run(wire, func(t *testing.T) {
				t.Parallel()
				late := fmt.Sprintf("DELAY%d=%.3f", rand.IntN(2), rand.Float64())
				t.Log(late)
				pair(t, wire, late, "")
			})
		}
	}
}

// TestAddressChanges gives a host another address while its rank is at work: it dials the other
// one, whose address is as it was.
func TestAddressChanges(t *testing.T) {
	t.Parallel()
	said := pair(t, "plain", "", "while [ ! -e $FOLDER/ready0 ] || [ ! -e $FOLDER/ready1 ]; do sleep 0.05; done\n"+
		"ip -n host1 addr del 10.77.0.2/24 dev eth0\nip -n host1 addr add 10.77.0.99/24 dev eth0\ntouch $FOLDER/again",
		"-hosts.again")
	// Either side may be the one that notices. No address but the new one is left to carry on by.
	require.Regexp(t, `a new one to 10\.77\.0\.(1|99):\d+ carries on after`, said)
}

// TestLargePacketsLost has a path that loses large packets, and says so to nobody: the ranks find
// out and send smaller ones.
func TestLargePacketsLost(t *testing.T) {
	t.Parallel()
	for wire, bytes := range map[string]int{"most=1300": 1200, "most=600": 536} {
		t.Run(wire, func(t *testing.T) {
			t.Parallel()
			said := pair(t, wire, "", "")
			require.Contains(t, said, "large packets are lost between")
			require.Contains(t, said, fmt.Sprintf("segments have %d bytes from now on", bytes))
		})
	}
}
