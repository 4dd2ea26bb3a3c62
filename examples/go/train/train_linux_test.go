package main_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/netlab"
	_ "github.com/goccl/goccl/internal/scratch"
)

// built builds the example, the launcher, and what makes networks.
func built(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, path := range map[string]string{"train": ".", "goccl": "../../../cmd/goccl",
		"with": "../../../internal/netlab/with"} {
		text, err := exec.Command("go", "build", "-o", filepath.Join(folder, name), path).CombinedOutput()
		require.NoError(t, err, string(text))
	}
	return folder
}

// fits checks what rank 0 prints: the line is found.
func fits(t *testing.T, text, ranks string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.Len(t, lines, 5, text)
	require.Regexp(t, `^step   0 on `+ranks+` ranks: y = `, lines[0])
	require.Regexp(t, `^step 200 on `+ranks+` ranks: y = (3\.00|2\.9|3\.0)\d* x \+ (1\.0|0\.9)\d*$`, lines[4])
}

func TestOneHost(t *testing.T) {
	folder := built(t)
	goccl, train := filepath.Join(folder, "goccl"), filepath.Join(folder, "train")
	text, err := exec.Command(goccl, "run", "-n", "3", "--", train).CombinedOutput()
	require.NoError(t, err, string(text))
	fits(t, string(text), "3")

	wrong := exec.Command(goccl, "run", "-n", "2", "--", train)
	wrong.Env = append(os.Environ(), "GOCCL_ALGRO=all_reduce=ring")
	text, err = wrong.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "unknown option GOCCL_ALGRO; did you mean GOCCL_ALGO?")

	text, err = exec.Command(train).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "WORLD_SIZE is not set: a launcher sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT")
}

// TestStatic builds the program without a dynamic loader, and runs a rank of it where there is
// nothing else: no /proc, no libraries.
func TestStatic(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may change its root directory")
	}
	folder := t.TempDir()
	build := exec.Command("go", "build", "-tags", "nordma", "-o", filepath.Join(folder, "train"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	program, err := elf.Open(filepath.Join(folder, "train"))
	require.NoError(t, err)
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	cmd := exec.Command("/train")
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: folder}, "/"
	cmd.Env = []string{"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29400"}
	text, err = cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	fits(t, string(text), "1")
}

// TestTwoHosts has two ranks on each of two hosts.
func TestTwoHosts(t *testing.T) {
	if err := netlab.Possible(); err != nil {
		t.Skip(err)
	}
	folder := built(t)
	network := netlab.Network{Hosts: 2, Wires: []netlab.Wire{{}}}
	on := func(host string) string {
		return "ip netns exec host" + host + " ./goccl run -n 2 --hosts 2 --host " + host + " --address " +
			network.Address(0, 0) + " --port 29400 -- ./train"
	}
	script := on("0") + " & first=$!\n" + on("1") + " & second=$!\nwait $first && wait $second"
	cmd := exec.Command("./with", "-wire", "plain", "--", "sh", "-c", script)
	cmd.Dir = folder
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	fits(t, string(text), "4")
}
