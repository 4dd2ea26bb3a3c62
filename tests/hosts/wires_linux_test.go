package hosts_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/tcp"
)

var rankFlag = flag.String("hosts.rank", "", "FOLDER/RANK: be a rank of TestRightWire")

// TestRankOfWire is a process of TestRightWire: it sends 2 MiB to the other one, receives as much,
// and prints what each interface has sent.
func TestRankOfWire(t *testing.T) {
	if *rankFlag == "" {
		return // it runs as a process of TestRightWire only
	}
	folder, name := filepath.Split(*rankFlag)
	rank, err := strconv.Atoi(name)
	require.NoError(t, err)
	doorbell := park.NewDoorbell()
	fabric, err := tcp.New(tcp.Options{Doorbell: doorbell,
		Info: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }})
	require.NoError(t, err)
	defer fabric.Close()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "new"+name), fabric.Address(), 0o600))
	require.NoError(t, os.Rename(filepath.Join(folder, "new"+name), filepath.Join(folder, "address"+name)))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var peer []byte
	require.Eventually(t, func() bool {
		peer, err = os.ReadFile(filepath.Join(folder, fmt.Sprint("address", 1-rank)))
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	link, err := fabric.Connect(ctx, peer, transport.Session{Rank: rank, Peer: 1 - rank, Channels: 1})
	require.NoError(t, err)
	const total = 2 << 20
	ch := link.Channel(0)
	for sent, received := 0, 0; sent < total || received < total; {
		require.NoError(t, ctx.Err())
		ticket := doorbell.Prepare()
		fabric.Arm()
		moved := fabric.Poll()
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
			doorbell.Cancel()
			continue
		}
		require.NoError(t, link.Err()) // the peer may have left, but not before everything has arrived
		doorbell.Sleep(ticket, time.Second)
	}
	require.NoError(t, link.Close())
	require.NoError(t, fabric.Close())
	for _, eth := range []string{"eth0", "eth1"} {
		text, err := os.ReadFile("/sys/class/net/" + eth + "/statistics/tx_bytes")
		require.NoError(t, err)
		fmt.Printf("%s sent %s\n", eth, strings.TrimSpace(string(text)))
	}
}

// TestRightWire has two hosts with a slow wire, which is listed first, and a fast one: all data
// goes by the fast one.
func TestRightWire(t *testing.T) {
	folder := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	rank := func(n int) string {
		return fmt.Sprintf("ip netns exec host%d %s -test.run ^TestRankOfWire$ -hosts.rank %s/%d", n, self, folder, n)
	}
	said := script(t, []string{"rate=50mbit", "rate=1gbit"}, rank(0)+" &\n"+rank(1)+"\nwait $!")
	require.Equal(t, 1, strings.Count(said, "best first: eth1"), said)
	sent := map[string][]int{}
	for line := range strings.Lines(said) {
		var bytes int
		var eth string
		if n, _ := fmt.Sscanf(line, "%4s sent %d", &eth, &bytes); n == 2 {
			sent[eth] = append(sent[eth], bytes)
		}
	}
	require.Len(t, sent["eth0"], 2, said)
	for i := range 2 {
		require.Less(t, sent["eth0"][i], 1<<20, "no more than a probe")
		require.Greater(t, sent["eth1"][i], 2<<20)
	}
}
