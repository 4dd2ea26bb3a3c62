package run

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/netlab"
)

// TestFourHosts has four launchers in network namespaces of their own. A rank of one that fails
// ends all of them, within --grace and a second, with its status; SIGTERM ends ranks that end well
// with status 0.
func TestFourHosts(t *testing.T) {
	if err := netlab.Possible(); err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	for name, path := range map[string]string{"goccl": "../..", "with": "../../../../internal/netlab/with"} {
		build := exec.Command("go", "build", "-tags", "nodrill", "-o", filepath.Join(folder, name), path)
		text, err := build.CombinedOutput()
		require.NoError(t, err, string(text))
	}
	network := netlab.Network{Hosts: 4, Wires: []netlab.Wire{{}}}
	// The command runs when all ranks of the job are there.
	ranks := `echo > here.$RANK; while test $(ls here.* | wc -l) -lt 8; do sleep 0.01; done; `
	launch := func(command string) string {
		lines := "rm -f here.*; begin=$(date +%s%N)\n"
		for host := range network.Hosts {
			lines += fmt.Sprintf("ip netns exec %s ./goccl run -n 2 --hosts 4 --host %d --address %s --port 29400 --grace 1s -- sh -c '%s' &\n"+
				"p%d=$!\n", netlab.Host(host), host, network.Address(0, 0), ranks+command, host)
		}
		return lines
	}
	wait := "for p in $p0 $p1 $p2 $p3; do wait $p; printf '%s ' $?; done; echo in $((($(date +%s%N) - begin) / 1000000)) ms\n"
	script := launch(`test $RANK = 5 && exit 42; trap "" TERM; while :; do sleep 0.1; done`) + wait +
		launch(`trap "exit 0" TERM; echo > ready.$RANK; while :; do sleep 0.1; done`) +
		"while test $(ls ready.* 2>/dev/null | wc -l) -lt 8; do sleep 0.01; done; kill $p0 $p1 $p2 $p3\n" + wait
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
	require.Equal(t, []string{"42 42 42 42", "0 0 0 0"}, statuses, said.String())
	require.Contains(t, said.String(), "host 2: rank 5 ended after ")
}
