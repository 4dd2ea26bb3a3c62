package run

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
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
	lines, err = started(t, echo+` $MASTER_PORT`,
		"-n", "2", "--label", "--hosts", "3", "--host", "2", "--address", "10.1.2.3", "--port", "29400")
	require.NoError(t, err)
	require.Equal(t, []string{
		"[4] 4 of 6, 0 of 2 on 2, 10.1.2.3 3 29400", "[5] 5 of 6, 1 of 2 on 2, 10.1.2.3 3 29400",
	}, lines)
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

// An interrupt ends all ranks.
func TestRunInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(context.Background())
	l := launch{ranks: 2, hosts: 1, grace: 100 * time.Millisecond,
		command: []string{"sh", "-c", `echo $$ > ` + file + `.$RANK; trap "" TERM; while :; do sleep 1; done`}}
	done := make(chan error)
	go func() { done <- l.all(ctx) }()
	for _, rank := range []string{".0", ".1"} {
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(file + rank)
			return bytes.HasSuffix(text, []byte("\n"))
		}, 10*time.Second, time.Millisecond)
	}
	cancel()
	require.ErrorContains(t, <-done, "interrupted")
	gone(t, file+".0")
	gone(t, file+".1")
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
	for _, c := range strings.TrimSpace(string(text)) {
		pid = 10*pid + int(c-'0')
	}
	require.Eventually(t, func() bool {
		state, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(text)), "stat"))
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
}
