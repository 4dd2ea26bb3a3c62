package run

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	_ "github.com/goccl/goccl/internal/scratch"
)

// started runs goccl run with a shell script as the command.
func started(t *testing.T, script string, flags ...string) (lines []string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = cli.Execute(cli.Root(Command()), append(append([]string{"run"}, flags...), "--", "sh", "-c", script), &out)
	lines = strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	slices.Sort(lines)
	return lines, err
}

func TestRunEnvironment(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "3")
	echo := `echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK, $MASTER_ADDR $OMP_NUM_THREADS"`
	lines, err := started(t, echo, "-n", "2", "--label")
	require.NoError(t, err)
	require.Equal(t, []string{"[0] 0 of 2, 0 of 2 on 0, 127.0.0.1 3", "[1] 1 of 2, 1 of 2 on 0, 127.0.0.1 3"}, lines)
	of := &launch{ranks: 2, hosts: 3, host: 2, address: "10.1.2.3", port: 29400}
	require.Subset(t, of.environment(1, false), []string{"RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
		"GROUP_RANK=2", "MASTER_ADDR=10.1.2.3", "MASTER_PORT=29400", "OMP_NUM_THREADS=3"})
}

// A rank that fails ends the others, those that ignore SIGTERM and what they have started too.
func TestRunFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	begun := time.Now()
	_, err := started(t, `test $RANK = 1 && { while ! test -s `+file+`; do sleep 0.01; done; exit 7; }
trap "" TERM; sleep 1000 & echo $! > `+file+`.new; mv `+file+`.new `+file+`; wait; wait`, "-n", "2", "--grace", "100ms")
	require.ErrorContains(t, err, "rank 1 ended after ")
	require.ErrorContains(t, err, "exit status 7")
	require.Equal(t, 7, cli.Status(err))
	require.Less(t, time.Since(begun), 30*time.Second)
	gone(t, file)
}

// With --recover the others go on, and what a failed rank has started ends with them.
func TestRunRecover(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	script := `if test $RANK = 1; then sleep 1000 & echo $! > ` + file + `; exit 7; fi
while ! test -s ` + file + `; do sleep 0.01; done; sleep 0.1; echo well`
	lines, err := started(t, script, "-n", "3", "--label", "--recover")
	require.NoError(t, err)
	require.Equal(t, []string{"[0] well", "[2] well"}, lines)
	gone(t, file)
	_, err = started(t, "exit 7", "-n", "2", "--recover")
	require.ErrorContains(t, err, "exit status 7")
}

// With --replace new processes come for the first ranks that fail. They are told whose place they
// take, and where the job's address is.
func TestRunReplace(t *testing.T) {
	script := `if test -n "$JOB_REPLACES"; then echo "for $JOB_REPLACES, $LOCAL_RANK: $(cat $JOB_ADDRESS_FILE)"; exit 0; fi
if test $RANK = 0; then echo here > $JOB_ADDRESS_FILE.new; mv $JOB_ADDRESS_FILE.new $JOB_ADDRESS_FILE; sleep 0.3; exit 0; fi
while ! test -s $JOB_ADDRESS_FILE; do sleep 0.01; done; exit 7`
	lines, err := started(t, script, "-n", "3", "--label", "--replace", "2")
	require.NoError(t, err)
	require.Equal(t, []string{"[1] for 1, 1: here", "[2] for 2, 2: here"}, lines)
	lines, err = started(t, `echo "$JOB_REPLACES$JOB_ADDRESS_FILE"; exit 7`, "-n", "1", "--label", "--replace", "5")
	require.ErrorContains(t, err, "exit status 7")
	require.Len(t, lines, 1, "nobody is left whom a new process could join")
	// A process that fails again and again is not started for ever.
	lines, err = started(t, `test $RANK = 0 && { sleep 0.5; exit 0; }; echo "${JOB_REPLACES:-first}"; exit 7`,
		"-n", "2", "--label", "--replace", "3")
	require.NoError(t, err)
	require.Equal(t, []string{"[1] 1", "[1] 1", "[1] 1", "[1] first"}, lines)
}

// TestRunSignals sends signals to the launcher: its ranks get them. SIGINT and SIGTERM end the job:
// with status 0 if all ranks end well, with that of the first one that does not, and with SIGKILL
// after --grace, or at the next signal.
func TestRunSignals(t *testing.T) {
	const patient = time.Hour
	for name, test := range map[string]struct {
		script string // after the rank has written its pid
		grace  time.Duration
		send   []syscall.Signal // the next when all ranks have taken the one before
		status int
		said   string
	}{
		"all end well": {`trap "exit 0" TERM`, patient, []syscall.Signal{syscall.SIGTERM}, 0, ""},
		"one does not": {`trap "exit $((RANK * 9))" INT`, patient, []syscall.Signal{syscall.SIGINT}, 9,
			"rank 1 ended after"},
		"no handler": {`:`, patient, []syscall.Signal{syscall.SIGTERM}, 143, "signal: terminated"},
		"they stay": {`trap "" TERM`, 100 * time.Millisecond, []syscall.Signal{syscall.SIGTERM}, 137,
			"signal: killed"},
		"they stay, and the user insists": {`trap "echo >> $file" INT`, patient,
			[]syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 137, "signal: killed"},
		"others go on": {`trap "echo >> $file" HUP USR1 USR2; trap "exit 3" TERM`, patient,
			[]syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM}, 3, "exit status 3"},
		"with --recover": {`trap "exit 3" TERM`, patient, []syscall.Signal{syscall.SIGTERM}, 3, "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			l := launch{ranks: 2, hosts: 1, grace: test.grace, recover: name == "with --recover", replace: 2,
				// A shell cannot trap what was ignored when it began.
				command: []string{"env", "--default-signal", "sh", "-c", `file=` + file + `.$RANK; ` + test.script +
					`; echo $$ > $file; while :; do sleep 0.01; done`}}
			signals, done := make(chan os.Signal), make(chan error)
			go func() { done <- l.all(signals, nil) }()
			for i, s := range test.send {
				for _, rank := range []string{".0", ".1"} {
					require.Eventually(t, func() bool {
						text, _ := os.ReadFile(file + rank)
						return bytes.Count(text, []byte("\n")) == 1+i
					}, 20*time.Second, time.Millisecond)
				}
				signals <- s
			}
			err := <-done
			require.Equal(t, test.status, cli.Status(withStatus(err)), "%v", err)
			if test.said != "" {
				require.ErrorContains(t, err, test.said)
			}
			gone(t, file+".0")
			gone(t, file+".1")
		})
	}
}

// What a rank leaves behind does not keep the others waiting for their output.
func TestRunLeftBehind(t *testing.T) {
	lines, err := started(t, `echo here; sleep 5 & exit 0`, "-n", "1", "--label", "--grace", "50ms")
	require.NoError(t, err)
	require.Equal(t, []string{"[0] here"}, lines)
}

// gone waits until the process whose pid is in a file has ended.
func gone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var pid int
	for _, c := range strings.Fields(string(text))[0] {
		pid = 10*pid + int(c-'0')
	}
	require.Eventually(t, func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if os.IsNotExist(err) || bytes.Contains(state, []byte(") Z ")) {
			return true
		}
		return syscall.Kill(pid, 0) == syscall.ESRCH
	}, 10*time.Second, time.Millisecond, "pid %d stays", pid)
}

func TestRunMisuse(t *testing.T) {
	for _, test := range []struct {
		want string
		args []string
	}{
		{"-n says how many ranks", []string{"--", "true"}},
		{"there is no command", []string{"-n", "2"}},
		{"--host 2 of --hosts 2", []string{"-n", "1", "--hosts", "2", "--host", "2", "--", "true"}},
		{"all need the same --address", []string{"-n", "1", "--hosts", "2", "--port", "1", "--", "true"}},
		{"all need the same --address", []string{"-n", "1", "--hosts", "2", "--address", "10.0.0.1", "--", "true"}},
		{"--replace -1", []string{"-n", "1", "--replace", "-1", "--", "true"}},
		{"--port 70000", []string{"-n", "1", "--port", "70000", "--", "true"}},
	} {
		err := cli.Execute(cli.Root(Command()), append([]string{"run"}, test.args...), &bytes.Buffer{})
		require.ErrorAs(t, err, new(cli.Misuse), "%v", test.args)
		require.ErrorContains(t, err, test.want, "%v", test.args)
	}
	err := cli.Execute(cli.Root(Command()), []string{"run", "-n", "1", "--", "/no/such/command"}, &bytes.Buffer{})
	require.ErrorContains(t, err, "rank 0 cannot be started")
	require.Equal(t, 127, cli.Status(err))
	folder := t.TempDir()
	err = cli.Execute(cli.Root(Command()), []string{"run", "-n", "1", "--", folder}, &bytes.Buffer{})
	require.Equal(t, 126, cli.Status(err), "%v", err)
}
