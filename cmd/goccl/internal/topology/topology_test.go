package topology

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

const machine = "../../../../ccl/topo/network/testdata/two_sockets.topo"

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(t.TempDir(), "cache"))
	var out strings.Builder
	err := cli.Execute(cli.Root(Command()), append([]string{"topo"}, args...), &out)
	return out.String(), err
}

func TestPrinted(t *testing.T) {
	out, err := execute(t, machine)
	require.NoError(t, err)
	require.Equal(t, `node1: 4 ranks, 15 other nodes, 40 links
memory0 64G
  L3.0 32M  30 GB/s
    core0, core1  12 GB/s, 60 ns
  pci0000:00  rate unknown
    eth0  rate unknown
  pci0000:17  rate unknown
    0000:17:01.0  rate unknown
      gpu0  32 GB/s
      mlx5_0:1  32 GB/s
memory1 64G
  L3.2 32M  30 GB/s
    core2, core3  12 GB/s, 60 ns
  pci0000:97  rate unknown
    0000:97:01.0  rate unknown
      gpu1  32 GB/s
      mlx5_1:1  32 GB/s
network
between-nodes-of-unknown-rate (rate unknown): memory0 - memory1
wire-1G (0.125 GB/s): eth0 - network
wire-200G (25 GB/s): mlx5_0:1 - network, mlx5_1:1 - network
`, out)
	out, err = execute(t, "uniform:64,alpha=1us,bw=25GB")
	require.NoError(t, err)
	require.Equal(t, "uniform-64: 64 ranks, 1 other nodes, 128 links; a message costs its sender 1 µs\n"+
		"switch\n  r0, r1 … r63 (64)  25 GB/s\n", out)
}

// TestThisMachine finds it, writes it in all forms, and finds no difference to what it wrote.
func TestThisMachine(t *testing.T) {
	folder := t.TempDir()
	path := func(end string) string { return filepath.Join(folder, "here"+end) }
	t.Setenv("XDG_CACHE_HOME", filepath.Join(folder, "cache"))
	run := func(args ...string) (string, error) {
		var out strings.Builder
		err := cli.Execute(cli.Root(Command()), append([]string{"topo"}, args...), &out)
		return out.String(), err
	}
	out, err := run()
	require.NoError(t, err)
	require.Regexp(t, `(?m)^rates measured 20\d\d-.*: one core copies [\d.]+ GB/s, all [\d.e+]+`, out)
	for _, end := range []string{".topo", ".json", ".svg"} {
		out, err := run("-o", path(end))
		require.NoError(t, err)
		require.Empty(t, out)
	}
	for _, end := range []string{".topo", ".json"} {
		out, err := run("--compare", path(end))
		require.NoError(t, err, out)
		require.Empty(t, out)
	}
	picture, err := os.ReadFile(path(".svg"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(picture), "<svg"))
	out, err = run("--json")
	require.NoError(t, err)
	_, err = network.Read(strings.NewReader(out))
	require.NoError(t, err)
	kept, err := filepath.Glob(folder + "/cache/goccl/rates-*.json")
	require.NoError(t, err)
	require.Len(t, kept, 1)
	before, err := os.Stat(kept[0])
	require.NoError(t, err)
	_, err = run("--measure")
	require.NoError(t, err)
	after, err := os.Stat(kept[0])
	require.NoError(t, err)
	require.NotEqual(t, before.ModTime(), after.ModTime())
}

// What GOCCL_TOPO describes is what groups use, and so what is printed.
func TestEnvironment(t *testing.T) {
	t.Setenv("GOCCL_TOPO", machine)
	out, err := execute(t)
	require.NoError(t, err)
	lines := strings.SplitN(out, "\n", 3)
	require.Equal(t, "GOCCL_TOPO="+machine+", which groups use in place of what is found here:", lines[0])
	require.Equal(t, "node1: 4 ranks, 15 other nodes, 40 links", lines[1])
	out, err = execute(t, "uniform:4")
	require.NoError(t, err)
	require.Contains(t, out, "uniform-4: 4 ranks")
	_, err = execute(t, "--measure")
	require.ErrorContains(t, err, "--measure is for this machine, not for "+machine)
	t.Setenv("GOCCL_TOPO", "off")
	out, err = execute(t)
	require.NoError(t, err)
	require.Contains(t, out, "rates measured")
	t.Setenv("GOCCL_TOPO", "./nothing")
	_, err = execute(t)
	require.ErrorContains(t, err, "there is no such file")
	require.Equal(t, 2, cli.Status(err))
}

func TestRefused(t *testing.T) {
	out, err := execute(t, machine, "--compare", "nvlink:4")
	require.Equal(t, 1, cli.Status(err))
	require.Contains(t, out, "− rank core0 core\n")
	for _, c := range []struct{ args, says string }{
		{"no/such/file", "there is no such file; see goccl help topo"},
		{"hypercube:8", "unknown kind \"hypercube\""},
		{machine + " --measure", "--measure is for this machine"},
		{machine + " --compare ./nothing", "there is no such file"},
		{"a b", "usage: goccl topo [TOPOLOGY]"},
	} {
		_, err := execute(t, strings.Fields(c.args)...)
		require.ErrorContains(t, err, c.says)
		require.Equal(t, 2, cli.Status(err), c.args)
	}
}
