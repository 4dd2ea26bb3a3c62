package tune

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/netlab"
)

// hang is the time by which every awaited event must have happened; no test here is about speed.
const hang = time.Minute

// tuner runs the real command from a folder of its own; its processes are found by the folder's
// name.
type tuner struct{ folder string }

func newTuner(t *testing.T) *tuner {
	folder, err := os.MkdirTemp("", "goccl-tune-")
	require.NoError(t, err)
	c := &tuner{folder}
	t.Cleanup(func() {
		for _, pid := range c.processes() { // left over from failed tests
			syscall.Kill(pid, syscall.SIGKILL)
		}
		os.RemoveAll(folder)
	})
	require.NoError(t, os.Chmod(folder, 0o755)) // so that other users can run the command
	build, err := exec.Command("go", "build", "-o", filepath.Join(folder, "goccl"), "../..").CombinedOutput()
	require.NoError(t, err, "%s", build)
	return c
}

// running is one run, which is killed if it hangs.
type running struct {
	cmd         *exec.Cmd
	out, errors bytes.Buffer
}

func (c *tuner) start(t *testing.T, path string, user *syscall.Credential, args ...string) *running {
	return c.startMode(t, path, user, "fit", args...)
}

func (c *tuner) startMode(t *testing.T, path string, user *syscall.Credential, mode string, args ...string) *running {
	r := &running{cmd: exec.Command(filepath.Join(c.folder, "goccl"), append([]string{"tune", mode}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.Dir = &r.out, &r.errors, "/"
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	r.cmd.WaitDelay = 5 * time.Second // for leftover processes that still hold its standard error
	if path != "" {
		r.cmd.Env = append(os.Environ(), "PATH="+path)
	}
	require.NoError(t, r.cmd.Start())
	killer := time.AfterFunc(hang, func() { r.cmd.Process.Kill() })
	t.Cleanup(func() {
		killer.Stop()
		if r.cmd.ProcessState == nil {
			r.cmd.Process.Kill()
			r.cmd.Wait()
		}
	})
	return r
}

// processes returns the processes whose command line contains the folder and all of the words.
func (c *tuner) processes(words ...string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
next:
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil { // the process has ended meanwhile
			continue
		}
		for _, word := range append(words, c.folder) {
			if !bytes.Contains(text, []byte(word)) {
				continue next
			}
		}
		var pid int
		fmt.Sscanf(path, "/proc/%d/cmdline", &pid)
		pids = append(pids, pid)
	}
	return pids
}

// await returns the processes once there are count of them.
func (c *tuner) await(t *testing.T, r *running, count int, words ...string) (pids []int) {
	t.Helper()
	for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if pids = c.processes(words...); len(pids) == count {
			return pids
		}
	}
	require.Failf(t, "no such processes", "%d instead of %d with %q; %s", len(pids), count, words, &r.errors)
	return nil
}

// connected reports whether there is a TCP connection in the network of a process.
func connected(pid int) bool {
	const established = " 01 "
	var all []byte
	for _, name := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, name)) // there is no tcp6 if IPv6 is off
		all = append(all, text...)
	}
	return bytes.Contains(all, []byte(established))
}

// machine lists everything that a run could leave behind, other than processes.
func machine(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, line := range []string{"ip netns list", "ip -o link show", "tc qdisc show", "cat /proc/self/mounts"} {
		words := strings.Fields(line)
		said, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, said)
		fmt.Fprintf(&all, "$ %s\n%s", line, said)
	}
	return all.String()
}

// nothingLeft is called after a run has ended. A process that lost its parent may take a moment to
// end.
func (c *tuner) nothingLeft(t *testing.T, before string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(c.processes()) == 0 }, hang, 5*time.Millisecond,
		"processes are left: %v", c.processes())
	require.Equal(t, before, machine(t))
}

// quick are flags with which a fit takes no longer than it must.
const quick = "--force --size 64..64K --factor 32 --repeat 3 --block 1ms --output "

// checkFit reads the output of --json, which is what the file has.
func checkFit(t *testing.T, text, file string) cost.Table {
	t.Helper()
	made, err := readCosts(file)
	require.NoError(t, err)
	var printed cost.File
	require.NoError(t, json.Unmarshal([]byte(text), &printed), text)
	require.Equal(t, made.Costs, printed.Costs)
	part := cmp.Or(made.Network, made.Host)
	require.WithinDuration(t, time.Now(), part.Measured, time.Hour)
	require.Positive(t, part.Misfit)
	return made.Costs
}

// longRun measures for much longer than the tests that interrupt it take. long distinguishes its
// ranks.
var longRun = strings.Fields("--force --size 1K,256M --repeat 5 --output /tmp/never")

const (
	long = `"Sizes":[1024,268435456]`
	slow = "10mbit" // ranks that are not ended would run for minutes
)

func TestTune(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") // the folders of ip and tc, also for users other than root
	c := newTuner(t)
	t.Run("Unshaped", c.testUnshaped)
	t.Run("Shaped", c.testShaped)
	t.Run("ShapedByUser", c.testShapedByUser)
	t.Run("MeasuredOnHosts", c.testMeasuredOnHosts)
	t.Run("Launched", c.testLaunched)
}

// Two ranks of a launcher measure the network between them, and both hosts keep the same costs.
func (c *tuner) testLaunched(t *testing.T) {
	needNamespaces(t, nil)
	before := machine(t)
	with := filepath.Join(c.folder, "with")
	build, err := exec.Command("go", "build", "-o", with, "../../../../internal/netlab/with").CombinedOutput()
	require.NoError(t, err, "%s", build)
	launch := func(hosts string) (string, error) {
		script := "export MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 WORLD_SIZE=2 GOCCL_SOCKET_IFNAME=eth0\n" +
			"for rank in 1 0; do RANK=$rank LOCAL_RANK=0 XDG_CACHE_HOME=$DIR/$rank " +
			"ip netns exec host$((rank%" + hosts + ")) $DIR/goccl tune fit --launched --size 64..64K --factor 32 --repeat 3 --block 1ms & last=$!; done; " +
			"s=0; wait $last || s=$?; wait; exit $s"
		cmd := exec.Command(with, "-hosts", "2", "-wire", "rate=10gbit", "--", "sh", "-ec", script)
		cmd.Env = append(os.Environ(), "DIR="+c.folder)
		cmd.WaitDelay = 5 * time.Second
		timer := time.AfterFunc(hang, func() { cmd.Process.Kill() })
		defer timer.Stop()
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := launch("2")
	require.NoError(t, err, out)
	require.Contains(t, out, "the network between ")
	kept := func(rank string) *cost.File {
		t.Setenv("XDG_CACHE_HOME", filepath.Join(c.folder, rank))
		made, err := cost.Read(cost.Kept())
		require.NoError(t, err)
		return made
	}
	require.Equal(t, kept("0").Costs.Network, kept("1").Costs.Network)
	require.NotNil(t, kept("1").Network)
	require.Equal(t, cost.Usual().Windows, kept("0").Costs.Windows)

	out, err = launch("1")
	require.Error(t, err)
	require.Contains(t, out, "--launched: want two ranks on two hosts; this job has 2, from ")
	c.nothingLeft(t, before)
}

func (c *tuner) testMeasuredOnHosts(t *testing.T) {
	needNamespaces(t, nil)
	before := machine(t)
	table := filepath.Join(c.folder, "table")
	words := strings.Fields("--hosts 2 --rate 10gbit --ranks 4 --op all_gather --size 64..256 --runs 1 --repeat 3 " +
		"--block 1ms --output " + table)
	r := c.startMode(t, "", nil, "measure", words...)
	require.NoError(t, r.cmd.Wait(), &r.errors)
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^all_gather +4 +(yes|no) +2 +`, string(text))
	require.Contains(t, string(text), "goccl tune measure --hosts 2")
	c.nothingLeft(t, before)
}

func (c *tuner) testUnshaped(t *testing.T) {
	file := filepath.Join(c.folder, "new", "costs.json")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(c.folder, "cache")) // no costs of this machine
	r := c.start(t, "", nil, strings.Fields("--json "+quick+file)...)
	require.NoError(t, r.cmd.Wait(), &r.errors)
	costs := checkFit(t, r.out.String(), file)
	require.Less(t, costs.Memory.Latency, 1e-3)
	require.Equal(t, cost.Usual().Network, costs.Network, "it was not measured")
	check := c.startMode(t, "", nil, "check", strings.Fields("--costs "+file+
		" --ranks 2 --op broadcast,all_to_all --size 64..64 --repeat 3 --block 1ms --json --chosen")...)
	require.NoError(t, check.cmd.Wait(), &check.errors)
	require.Contains(t, check.out.String(), `"algorithm":"window"`)
	rows := filepath.Join(c.folder, "rows.json")
	require.NoError(t, os.WriteFile(rows, check.out.Bytes(), 0o600))
	out, err := run(t, strings.Fields("check --all --from "+rows)...)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^broadcast +\d+ +\d+\.\d %`, out)
	require.Regexp(t, `(?m)^all_to_all +2 +window +64 `, out)
	require.Regexp(t, `what the library chooses takes \d+\.\d+ times .* of 2 cells`, out)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		r := c.start(t, "", nil, longRun...)
		c.await(t, r, 2, ranks.Process, long)
		require.NoError(t, r.cmd.Process.Signal(sig))
		require.Error(t, r.cmd.Wait())
		require.Contains(t, r.errors.String(), "interrupted: "+sig.String())
		c.await(t, r, 0)
	}
}

func (c *tuner) testShaped(t *testing.T) {
	needNamespaces(t, nil)
	before := machine(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(c.folder, "cache")) // no costs of this machine
	file := filepath.Join(c.folder, "shaped.json")
	quick := strings.Fields("--rate 1gbit " + strings.ReplaceAll(quick, "64K", "1M") + file)

	t.Run("Fit", func(t *testing.T) {
		r := c.start(t, "", nil, append(quick, "--json")...)
		require.NoError(t, r.cmd.Wait(), &r.errors)
		costs := checkFit(t, r.out.String(), file)
		rate := costs.Network.Bandwidth / 1e6
		require.True(t, 25 < rate && rate < 160, "1 Gbit/s is 125 MB/s, fitted were %.1f", rate)
		require.Equal(t, cost.Usual().Windows, costs.Windows, "they were not measured")
		c.nothingLeft(t, before)
	})
	t.Run("TwoAtOnce", func(t *testing.T) {
		runs := []*running{c.start(t, "", nil, quick...), c.start(t, "", nil, quick...)}
		for _, r := range runs {
			require.NoError(t, r.cmd.Wait(), &r.errors)
			require.Contains(t, r.out.String(), "namespaces with ports of 1gbit, measured ")
			require.Contains(t, r.out.String(), file+" has them")
		}
		c.nothingLeft(t, before)
	})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run("Interrupted/"+strings.ReplaceAll(sig.String(), " ", "_"), func(t *testing.T) {
			r := c.start(t, "", nil, append(longRun, "--rate", slow)...)
			c.await(t, r, 2, ranks.Process, long)
			require.Equal(t, before, machine(t), "a run shows from outside")
			require.NoError(t, r.cmd.Process.Signal(sig))
			require.Error(t, r.cmd.Wait())
			if sig != syscall.SIGKILL {
				require.Contains(t, r.errors.String(), "interrupted: "+sig.String())
			}
			c.nothingLeft(t, before)
		})
	}
	t.Run("RankDies", func(t *testing.T) {
		r := c.start(t, "", nil, append(longRun, "--rate", slow)...)
		pid := c.await(t, r, 1, ranks.Process, long, `"Rank":1,`)[0]
		require.Eventually(t, func() bool { return connected(pid) }, hang, 5*time.Millisecond, "rank 1 found nobody")
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		require.Error(t, r.cmd.Wait())
		require.Contains(t, r.errors.String(), "rank 1: signal: killed")
		c.nothingLeft(t, before)
	})
	t.Run("NoTc", func(t *testing.T) {
		r := c.start(t, c.tools(t, ""), nil, quick...)
		require.Error(t, r.cmd.Wait())
		require.Contains(t, r.errors.String(), "networks of hosts need the command tc, and PATH has none: install iproute2")
		c.nothingLeft(t, before)
	})
	t.Run("SetUpFails", func(t *testing.T) {
		r := c.start(t, c.tools(t, "echo no such qdisc; exit 2"), nil, quick...)
		require.Error(t, r.cmd.Wait())
		require.Contains(t, r.errors.String(), "tc qdisc add dev port0")
		require.Contains(t, r.errors.String(), "no such qdisc")
		c.nothingLeft(t, before)
	})
	t.Run("SetUpInterrupted", func(t *testing.T) {
		folder := c.tools(t, "kill -STOP $$")
		r := c.start(t, folder, nil, quick...)
		c.await(t, r, 1, folder+"/tc")
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		require.Error(t, r.cmd.Wait())
		c.nothingLeft(t, before)
	})
}

// A user other than root creates the network within a user namespace.
func (c *tuner) testShapedByUser(t *testing.T) {
	var nobody *syscall.Credential
	if os.Geteuid() == 0 {
		nobody = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	needNamespaces(t, nobody)
	before := machine(t)
	folder := filepath.Join(c.folder, "user")
	require.NoError(t, os.Mkdir(folder, 0o777))
	require.NoError(t, os.Chmod(folder, 0o777))
	file := filepath.Join(folder, "costs.json")
	r := c.start(t, "", nobody, strings.Fields("--json --rate 1gbit "+quick+file)...)
	require.NoError(t, r.cmd.Wait(), &r.errors)
	checkFit(t, r.out.String(), file)
	c.nothingLeft(t, before)
}

// tools returns a PATH with ip, and with a script for tc if one is given.
func (c *tuner) tools(t *testing.T, tc string) string {
	folder, err := os.MkdirTemp(c.folder, "tools")
	require.NoError(t, err)
	ip, err := exec.LookPath("ip")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(ip, filepath.Join(folder, "ip")))
	if tc != "" {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "tc"), []byte("#!/bin/sh\n"+tc+"\n"), 0o755))
	}
	return folder
}

// needNamespaces skips the test if a network cannot be created, and reports the reason.
func needNamespaces(t *testing.T, user *syscall.Credential) {
	t.Helper()
	attributes, err := netlab.Attributes()
	if err != nil {
		t.Skip(err)
	}
	const probe = "ip link add probe type bridge && ip link add one type veth peer name two && " +
		"tc qdisc add dev one root tbf rate 1gbit burst 128kb latency 10ms"
	cmd := exec.Command("sh", "-c", probe)
	attributes.Pdeathsig = 0
	// The command becomes this user first, as the parent of the network.
	if user != nil {
		cmd = exec.Command("unshare", "--user", "--map-root-user",
			"--net", "--mount", "sh", "-c", "mount -t tmpfs none /run && "+probe)
		attributes = &syscall.SysProcAttr{Credential: user}
	}
	cmd.SysProcAttr = attributes
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Skipf("no bridge, veth or tbf here: %v: %s", err, said)
	} else if err != nil {
		t.Skipf("%v: %s", err, netlab.Hint)
	}
}
