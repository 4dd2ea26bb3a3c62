package rdma_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

// process is a rank, as the driver sees it.
type process struct {
	rank    int
	pid     int
	conn    net.Conn
	reports chan report // closed at its end
	mu      sync.Mutex
	said    []string // other lines
}

// begin starts a rank in each of the places, with words before the command, and has them join.
func begin(t *testing.T, part string, opts ccl.Options, places []guest, words ...string) []*process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	all := make([]*process, len(places))
	for rank, place := range places {
		text, err := json.Marshal(&spec{Part: part, Rank: rank, Ranks: len(places), Options: opts.String()})
		require.NoError(t, err)
		conn := place.command(t, append(words[:len(words):len(words)], self, rankArgument, string(text))...)
		t.Cleanup(func() { conn.Close() })
		p := &process{rank: rank, conn: conn, reports: make(chan report, 8)}
		go p.listen()
		all[rank] = p
	}
	addresses := make([][]byte, len(all))
	for rank, p := range all {
		first := p.next(t)
		p.pid, addresses[rank] = first.Pid, first.Address
	}
	text, err := json.Marshal(addresses)
	require.NoError(t, err)
	for _, p := range all {
		p.tell(t, string(text))
	}
	return all
}

// listen takes what the process says, until its end.
func (p *process) listen() {
	defer close(p.reports)
	for lines := bufio.NewScanner(p.conn); lines.Scan(); {
		r := report{came: time.Now()}
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			p.reports <- r
			continue
		}
		fmt.Printf("rank %d: %s\n", p.rank, lines.Text())
		p.mu.Lock()
		p.said = append(p.said, lines.Text())
		p.mu.Unlock()
	}
}

// next returns what the process reports next.
func (p *process) next(t *testing.T) report {
	t.Helper()
	select {
	case r, ok := <-p.reports:
		require.True(t, ok, "rank %d has ended", p.rank)
		return r
	case <-time.After(2 * patience):
		require.Fail(t, "HANG", "rank %d reports nothing", p.rank)
	}
	return report{}
}

// ends waits until the process has ended.
func (p *process) ends(t *testing.T) {
	t.Helper()
	select {
	case r, ok := <-p.reports:
		require.False(t, ok, "rank %d reports %+v", p.rank, r)
	case <-time.After(patience):
		require.Fail(t, "HANG", "rank %d does not end", p.rank)
	}
}

func (p *process) tell(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(p.conn, line)
	require.NoError(t, err)
}

// lines counts the lines with a text.
func (p *process) lines(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.said {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// TestProcesses has processes of one machine call every collective.
func TestProcesses(t *testing.T) {
	place := here(t)
	for _, ranks := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) { collectives(t, ccl.Options{}, many(place, ranks)) })
	}
}

func many(place guest, ranks int) []guest {
	all := make([]guest, ranks)
	for i := range all {
		all[i] = place
	}
	return all
}

func collectives(t *testing.T, opts ccl.Options, places []guest) {
	opts.Transport, opts.Determinism = "rdma", 4
	all := begin(t, "collectives", opts, places)
	for _, p := range all {
		r := p.next(t)
		require.True(t, r.Done)
		t.Logf("rank %d of %d: %d collectives as among ranks of one process; %s", p.rank, len(all), r.Calls, r.Paths)
		require.Equal(t, len(all)-1, strings.Count(r.Paths, "from rxe"), r.Paths)
		p.ends(t)
	}
}

// TestKilled has one of three processes of one machine killed.
func TestKilled(t *testing.T) { killed(t, ccl.Options{}, many(here(t), 3), time.Second) }

// killed has rank 1 killed; all others name it, and nobody else, within limit.
func killed(t *testing.T, opts ccl.Options, places []guest, limit time.Duration) {
	opts.Transport = "rdma"
	all := begin(t, "loop", opts, places)
	for _, p := range all {
		require.Equal(t, atKill, p.next(t).At)
	}
	const culprit = 1
	begun := time.Now()
	places[culprit].run(t, killCommand, strconv.Itoa(all[culprit].pid))
	for _, p := range all {
		if p.rank == culprit {
			continue
		}
		r := p.next(t)
		took := r.came.Sub(begun)
		t.Logf("rank %d of %d: %v after the signal: %s", p.rank, len(all), took.Round(time.Millisecond), r.Failed)
		require.Equal(t, []int{culprit}, r.Named, r.Failed)
		require.Less(t, took, limit)
		p.ends(t)
	}
	all[culprit].ends(t)
}

// TestLockLimit has processes that may lock 64 KiB: they say so, and use TCP.
func TestLockLimit(t *testing.T) {
	places := many(here(t), 2)
	// The limit does not bind whoever has the capability, as root does.
	opts := ccl.Options{GroupOptions: ccl.GroupOptions{Transport: "rdma", Determinism: 4}}
	all := begin(t, "collectives", opts, places,
		"sh", "-c", `ulimit -l 64 && exec setpriv --bounding-set=-ipc_lock "$0" "$@"`)
	for _, p := range all {
		r := p.next(t)
		require.True(t, r.Done)
		require.NotContains(t, r.Paths, "rxe")
		p.ends(t)
		require.NotZero(t, p.lines("RLIMIT_MEMLOCK is 64 KiB"))
		t.Logf("rank %d: %d collectives with 64 KiB that may be locked; %s", p.rank, r.Calls, r.Paths)
	}
}

// TestTwoMachines has a rank in each of two machines.
func TestTwoMachines(t *testing.T) {
	places := two(t)
	opts := ccl.Options{NodeOptions: ccl.NodeOptions{IBHCA: "=rxe1", SocketIfname: "eth0"},
		GroupOptions: ccl.GroupOptions{Debug: "INFO"}}
	t.Run("Collectives", func(t *testing.T) { collectives(t, opts, places[:]) })
	t.Run("Killed", func(t *testing.T) { killed(t, opts, places[:], 3*time.Second) })
	t.Run("Cuts", func(t *testing.T) { withCuts(t, opts, places) })
}

// withCuts has the second machine drop the packets of RoCE that come to it, and those only.
func withCuts(t *testing.T, opts ccl.Options, places [2]guest) {
	opts.Transport = "rdma"
	tc := func(words string) { places[1].run(t, append([]string{"tc"}, strings.Fields(words)...)...) }
	tc("qdisc add dev eth0 clsact")
	all := begin(t, "cuts", opts, places[:])
	var cutFor []time.Duration
	for begun := time.Now(); ; {
		r := all[0].next(t)
		switch r.At {
		case atCut:
			tc("filter add dev eth0 ingress protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff action drop")
			begun = time.Now()
		case atRestore:
			tc("filter del dev eth0 ingress")
			cutFor = append(cutFor, time.Since(begun).Round(time.Millisecond))
		default:
			require.Len(t, cutFor, cuts)
			require.GreaterOrEqual(t, all[0].lines("has broken"), cuts)
			for _, p := range all {
				if p.rank > 0 {
					r = p.next(t)
				}
				require.True(t, r.Done)
				t.Logf("rank %d: %d all-reduces in %v, %d began by rdma; %s; %d times broken; %s", p.rank, r.Calls,
					r.Took.Round(time.Millisecond), r.ByRDMA, r.Paths, p.lines("has broken"), r.Held)
				p.ends(t)
			}
			t.Logf("the port was closed for %v", cutFor)
			return
		}
		all[0].tell(t, "")
	}
}
