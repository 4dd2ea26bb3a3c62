package run

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

// forwarded are the signals that the ranks get when this process does. SIGINT and SIGTERM end the
// job; what the others mean is the ranks' business.
var forwarded = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// ended is the end of a rank.
type ended struct {
	rank, local int
	err         error // nil: with status 0
}

// startRank starts the process of a rank, or one in its place. Its end comes to ends.
func (l *launch) startRank(local int, replaces bool, prints *sync.WaitGroup, ends chan<- ended) (*exec.Cmd, error) {
	rank := l.host*l.ranks + local
	cmd := exec.Command(l.command[0], l.command[1:]...)
	cmd.Env, cmd.SysProcAttr, cmd.WaitDelay = l.environment(local, replaces), ranks.OwnGroup(), l.grace
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // a terminal stays one
	if l.label {
		cmd.Stdout, cmd.Stderr = l.lines(rank, l.out, prints), l.lines(rank, l.err, prints)
	}
	if err := l.orphans.start(cmd); err != nil {
		closeLines(cmd)
		return nil, cli.Ended{Err: fmt.Errorf("rank %d cannot be started: %w", rank, err), Status: notStarted(err)}
	}
	go func() {
		err := cmd.Wait()
		l.orphans.ended(cmd)
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // the rank has ended well, and something that it left prints on
		}
		closeLines(cmd)
		ends <- ended{rank, local, err}
	}()
	return cmd, nil
}

// notStarted returns the exit status for a command that cannot be started, as shells do.
func notStarted(err error) int {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return 127
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return 126
	}
	return 1
}

// job is the ranks of this host while they run.
type job struct {
	*launch
	begun    time.Time
	ranks    []*exec.Cmd
	prints   sync.WaitGroup
	ends     chan ended
	deadline <-chan time.Time // for those that are to end
	stopped  bool             // by a signal
	others   *hosts           // nil for none
	replaced int
	well     int   // ranks that have ended with status 0
	result   error // of the rank that failed first
	lost     error // of a rank without which the others go on
}

// all starts the ranks and waits for them. If one fails (unless the others go on without it), or a
// signal says so, it ends all others, with the processes that they have started. The result names
// the rank that failed first.
func (l *launch) all(signals <-chan os.Signal, others *hosts) error {
	// The ranks get SIGKILL when the thread that has started them ends, for example since this
	// process is killed.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	j := &job{launch: l, begun: time.Now(), ends: make(chan ended, l.ranks+l.replace), others: others}
	var failed <-chan failure
	if others != nil {
		failed = others.failed
	}
	for local := range l.ranks {
		var cmd *exec.Cmd
		if cmd, j.result = l.startRank(local, false, &j.prints, j.ends); j.result != nil {
			j.tell()
			j.signal(syscall.SIGKILL)
			break
		}
		j.ranks = append(j.ranks, cmd)
	}
	for left := len(j.ranks); left > 0; {
		select {
		case e := <-j.ends:
			left += j.rankEnded(e, left-1) - 1
		case s := <-signals:
			j.heard(s.(syscall.Signal))
		case f := <-failed:
			j.endedElsewhere(f)
		case <-j.deadline:
			j.signal(syscall.SIGKILL)
		}
	}
	if j.result == nil && j.well == 0 {
		j.result = j.lost
	}
	if others != nil {
		if j.result == nil {
			j.tell()
		}
		if f := others.stay(signals); f != nil {
			j.result = nil // what host 0 has heard first counts, for all
			j.endedElsewhere(*f)
		}
	}
	if j.result != nil || j.lost != nil || j.stopped {
		j.signal(syscall.SIGKILL) // what the ranks have started
	}
	j.prints.Wait()
	return j.result
}

// tell says to the other hosts how the ranks of this one have ended.
func (j *job) tell() {
	if j.others != nil {
		j.others.tell(withStatus(j.result))
	}
}

// endedElsewhere ends the ranks of this host since one of another host has failed.
func (j *job) endedElsewhere(f failure) {
	if j.result != nil {
		return
	}
	j.result = cli.Ended{Err: errors.New(f.Why), Status: f.Status}
	j.end()
}

// end ends the ranks that are left, unless a signal has told them already.
func (j *job) end() {
	if !j.stopped {
		j.signal(syscall.SIGTERM)
		j.deadline = time.After(j.grace)
	}
}

// signal sends a signal to all ranks, and to what they have started.
func (j *job) signal(s syscall.Signal) {
	for _, cmd := range j.ranks {
		syscall.Kill(-cmd.Process.Pid, s) // the group may have ended
	}
}

// heard passes a signal on. One that ends the job is the last that the ranks get but SIGKILL, which
// comes when --grace is over, or with the next one.
func (j *job) heard(s syscall.Signal) {
	switch {
	case s != syscall.SIGINT && s != syscall.SIGTERM:
		j.signal(s)
	case j.stopped:
		j.signal(syscall.SIGKILL)
	default:
		j.stopped = true
		j.signal(s)
		j.deadline = time.After(j.grace)
	}
}

// rankEnded notes the end of a rank, and does what follows from it. It returns how many new ranks
// there are.
func (j *job) rankEnded(e ended, others int) int {
	if e.err == nil {
		j.well++
		return 0
	}
	why := fmt.Errorf("rank %d ended after %.1f s: %w", e.rank, time.Since(j.begun).Seconds(), e.err)
	switch {
	case j.result != nil:
	case j.recover && !j.stopped:
		return j.goOn(e, why, others)
	default:
		j.result = why
		j.tell() // before the ranks of other hosts fail, too
		j.end()
	}
	return 0
}

// goOn has the other ranks go on without one that has failed, perhaps with a new process.
func (j *job) goOn(e ended, why error, others int) (more int) {
	text := fmt.Sprintf("goccl run: %v; %d others go on", why, others)
	if j.replaced < j.replace && others > 0 {
		j.replaced++
		if cmd, err := j.startRank(e.local, true, &j.prints, j.ends); err != nil {
			text += fmt.Sprintf(" without a new process: %v", err)
		} else {
			text += fmt.Sprintf(", and a new process (pid %d) comes", cmd.Process.Pid)
			j.ranks, more = append(j.ranks, cmd), 1
		}
	}
	printLine(j.err, text+"\n")
	if j.lost == nil {
		j.lost = why
	}
	return more
}

// lines returns a writer whose lines go to out, one by one, with the rank before them.
func (l *launch) lines(rank int, out io.Writer, prints *sync.WaitGroup) *io.PipeWriter {
	r, w := io.Pipe()
	prints.Go(func() {
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				printLine(out, fmt.Sprintf("[%d] %s\n", rank, strings.TrimSuffix(line, "\n")))
			}
			if err != nil {
				return
			}
		}
	})
	return w
}

var printing sync.Mutex // ranks print whole lines

func printLine(out io.Writer, line string) {
	printing.Lock()
	defer printing.Unlock()
	io.WriteString(out, line)
}

func closeLines(cmd *exec.Cmd) {
	for _, w := range []io.Writer{cmd.Stdout, cmd.Stderr} {
		if pipe, ok := w.(*io.PipeWriter); ok {
			pipe.Close()
		}
	}
}
