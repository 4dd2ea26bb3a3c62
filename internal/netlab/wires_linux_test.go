package netlab_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport/tcp"
)

var rankFlag = flag.String("hosts.rank", "", "FOLDER/RANK: be a rank of TestRightWire")

// TestRankOfWire is a process of TestRightWire: it sends 2 MiB to the other one, receives as much,
// and prints what each interface has sent.
func TestRankOfWire(t *testing.T) {
	if *rankFlag == "" {
		return // it runs as a process of TestRightWire only
	}
	folder, rank := ranked(t, *rankFlag)
	r := newRank(t, folder, rank, tcp.Options{})
	r.exchange(t)
	link, fabric := r.link, r.fabric
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
