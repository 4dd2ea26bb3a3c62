package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/netlab"
)

// built returns a folder with the commands goccl and with.
func built(t *testing.T) string {
	if err := netlab.Possible(); err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	for name, path := range map[string]string{"goccl": "../..", "with": "../../../../internal/netlab/with"} {
		build := exec.Command("go", "build", "-tags", "nodrill", "-o", filepath.Join(folder, name), path)
		text, err := build.CombinedOutput()
		require.NoError(t, err, string(text))
	}
	return folder
}

// onEach returns lines that start a launcher on each host, which are the processes p0, p1 …
func onEach(network netlab.Network, ranks int, command string) (lines string) {
	for host := range network.Hosts {
		lines += fmt.Sprintf("ip netns exec %s ./goccl run -n %d --hosts %d --host %d --address %s --port 29400 "+
			"--grace 1s -- %s &\np%d=$!\n",
			netlab.Host(host), ranks, network.Hosts, host, network.Address(0, 0), command, host)
	}
	return lines
}

// TestFourHosts has four launchers in network namespaces of their own. A rank of one that fails
// ends all of them, within --grace and a second, with its status; SIGTERM ends ranks that end well
// with status 0. goccl bench has ranks of all of them in one table.
func TestFourHosts(t *testing.T) {
	folder := built(t)
	network := netlab.Network{Hosts: 4, Wires: []netlab.Wire{{}}}
	// The command runs when all ranks of the job are there.
	ranks := `echo > here.$RANK; while test $(ls here.* | wc -l) -lt 8; do sleep 0.01; done; `
	run := func(command string) string {
		return "rm -f here.*; begin=$(date +%s%N)\n" + onEach(network, 2, command)
	}
	launch := func(command string) string { return run("sh -c '" + ranks + command + "'") }
	wait := "for p in $p0 $p1 $p2 $p3; do wait $p; printf '%s ' $?; done; echo in $((($(date +%s%N) - begin) / 1000000)) ms\n"
	script := launch(`test $RANK = 5 && exit 42; trap "" TERM; while :; do sleep 0.1; done`) + wait +
		launch(`trap "exit 0" TERM; echo > ready.$RANK; while :; do sleep 0.1; done`) +
		"while test $(ls ready.* 2>/dev/null | wc -l) -lt 8; do sleep 0.01; done; kill $p0 $p1 $p2 $p3\n" + wait +
		run("./goccl bench --launched --csv --size 8,64K --repeat 1 --block 1ms") + wait
	cmd := exec.Command("./with", "-hosts", "4", "-wire", "plain", "--", "sh", "-c", script)
	var said strings.Builder
	cmd.Dir, cmd.Stderr = folder, &said
	text, err := cmd.Output()
	require.NoError(t, err, said.String())
	var statuses []string
	for line := range strings.Lines(string(text)) {
		if before, after, found := strings.Cut(line, " in "); found && strings.HasSuffix(after, " ms\n") {
			statuses = append(statuses, before)
			var ms int
			_, err := fmt.Sscan(after, &ms)
			require.NoError(t, err)
			t.Log(line)
			require.Less(t, ms, 10_000) // about the 1 s of --grace
		}
	}
	require.Equal(t, []string{"42 42 42 42", "0 0 0 0", "0 0 0 0"}, statuses, said.String())
	require.Equal(t, 1, strings.Count(string(text), "algbw_gbs"), string(text))
	for _, size := range []string{"8,2", "65536,16384"} {
		for _, inPlace := range []string{"false", "true"} {
			require.Contains(t, string(text), "all_reduce,8,4,auto,"+size+",f32,sum,"+inPlace+",")
		}
	}
	require.Contains(t, said.String(), "host 2: rank 5 ended after ")
}

// TestLogsOfFourHosts reads what ranks on four hosts have written while one was cut off for two
// seconds, and another one killed later: one regular expression, that of docs/launch.md, takes all
// lines apart.
func TestLogsOfFourHosts(t *testing.T) {
	folder := built(t)
	network := netlab.Network{Hosts: 4, Wires: []netlab.Wire{{}}}
	bench := "exec ./goccl bench --launched --size 64K --repeat 100000 > /dev/null"
	script := onEach(network, 1, `sh -c 'echo $$ > pid.$RANK; `+bench+`'`) + `
until test $(cat log.* 2>/dev/null | grep -c ": goccl .* joined 4 ranks") = 4; do sleep 0.05; done
ip netns exec host2 ip link set eth0 down; sleep 2; ip netns exec host2 ip link set eth0 up
until grep -q " WARN " log.*; do sleep 0.05; done
kill -KILL $(cat pid.3)
for p in $p0 $p1 $p2 $p3; do wait $p; printf '%s ' $?; done
`
	cmd := exec.Command("./with", "-hosts", "4", "-wire", "plain", "--", "timeout", "60", "sh", "-c", script)
	var said strings.Builder
	cmd.Dir, cmd.Stderr = folder, &said
	cmd.Env = append(os.Environ(), "GOCCL_DEBUG=INFO", "GOCCL_DEBUG_FILE="+folder+"/log.%h.%p")
	text, err := cmd.Output()
	require.NoError(t, err, said.String())
	require.Equal(t, "137 137 137 137 ", string(text), said.String())

	page, err := os.ReadFile("../../../../docs/launch.md")
	require.NoError(t, err)
	onPage := regexp.MustCompile(`(?m)^    (\^.*goccl \(WARN.*\$)$`).FindStringSubmatch(string(page))
	require.Len(t, onPage, 2)
	form := regexp.MustCompile(onPage[1])
	files, err := filepath.Glob(folder + "/log.*")
	require.NoError(t, err)
	require.Len(t, files, 4)
	levels, ranks := map[string]int{}, map[string]int{}
	for _, file := range files {
		lines, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(lines)) {
			parts := form.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			require.NotNil(t, parts, line)
			_, err := time.Parse(time.RFC3339Nano, parts[1])
			require.NoError(t, err, line)
			levels[parts[4]]++
			ranks[parts[5]]++
		}
	}
	require.Positive(t, levels["INFO"])
	require.Positive(t, levels["WARN"])
	for rank := range 4 {
		require.Positive(t, ranks[strconv.Itoa(rank)], "no line of rank %d", rank)
	}
}
