// Package run is goccl run: it starts a command once for each rank, as the launchers of torch do.
package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/park"
)

// launch is a command that run starts once for each rank of this host.
type launch struct {
	ranks, hosts, host int
	address            string
	port               int
	grace              time.Duration
	label, recover     bool
	replace            int    // how many new processes may take the place of ranks that fail
	found              string // the file where the job keeps its address for them; "" if there are none
	command            []string
	out, err           io.Writer
}

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "run -n RANKS [flags] -- CMD …",
		Short: "start a command once for each rank, and end all when one fails",
	}
	l := &launch{}
	f := c.Flags()
	f.SetInterspersed(false) // flags after the command are the command's
	count := cli.Flag(f, "n,ranks", "N", "", "ranks on this host", cli.Number(1, 0))
	hosts := cli.Flag(f, "hosts", "N", "1", "number of hosts; run is started once on each of them", cli.Number(1, 0))
	host := cli.Flag(f, "host", "N", "0", "number of this host, from 0", cli.Number(0, 0))
	f.StringVar(&l.address, "address", "127.0.0.1", "`ADDRESS` of host 0, where rank 0 waits for the others")
	port := cli.Flag(f, "port", "PORT", "0", "port there; 0 takes a free one, with one host", cli.Number(0, 1<<16-1))
	f.DurationVar(&l.grace, "grace", 5*time.Second,
		"when a rank has failed, the others get SIGTERM, and SIGKILL after this `TIME`")
	f.BoolVar(&l.recover, "recover", false,
		"go on when a rank fails, as long as one is left; the status is 0 if one has ended well")
	replace := cli.Flag(f, "replace", "N", "0", "start a new process for a rank that fails, so many times at most, and go "+
		"on as with --recover; it finds JOB_REPLACES=RANK, and in the file JOB_ADDRESS_FILE what goccl.join takes",
		cli.Number(0, 0))
	f.BoolVar(&l.label, "label", false, "begin each line that a rank prints with [RANK]")
	c.RunE = func(c *cobra.Command, args []string) error {
		l.ranks, l.hosts, l.host, l.port, l.replace = *count, *hosts, *host, *port, *replace
		l.command, l.out, l.err = args, c.OutOrStdout(), os.Stderr
		if err := l.check(); err != nil {
			return cli.Misuse{Err: err}
		}
		err := l.start()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return cli.Ended{Err: err, Status: statusOf(exit)}
		}
		return err
	}
	return c
}

// statusOf returns the exit status of a command as shells do.
func statusOf(exit *exec.ExitError) int {
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return exit.ExitCode()
}

func (l *launch) start() (err error) {
	if l.port == 0 {
		if l.port, err = freePort(); err != nil {
			return err
		}
	}
	if l.replace > 0 {
		folder, err := os.MkdirTemp("", "goccl-run-") // which others cannot read
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		l.recover, l.found = true, filepath.Join(folder, "address")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return l.all(ctx)
}

func (l *launch) check() error {
	switch {
	case l.ranks == 0:
		return errors.New("-n says how many ranks this host has: goccl run -n 8 -- CMD …")
	case len(l.command) == 0:
		return errors.New("there is no command: goccl run -n 8 -- CMD …")
	case l.host >= l.hosts:
		return fmt.Errorf("--host %d of --hosts %d: hosts are numbered from 0", l.host, l.hosts)
	case l.hosts > 1 && (l.port == 0 || strings.HasPrefix(l.address, "127.")):
		return errors.New("with several --hosts all need the same --address and --port of host 0")
	}
	return nil
}

// freePort returns a port of this host that nothing listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// environment returns what the launchers of torch set, for one rank, or for the process in its
// place.
func (l *launch) environment(local int, replaces bool) []string {
	all := append(os.Environ(),
		"RANK="+strconv.Itoa(l.host*l.ranks+local), "WORLD_SIZE="+strconv.Itoa(l.hosts*l.ranks),
		"LOCAL_RANK="+strconv.Itoa(local), "LOCAL_WORLD_SIZE="+strconv.Itoa(l.ranks),
		"GROUP_RANK="+strconv.Itoa(l.host), "MASTER_ADDR="+l.address, "MASTER_PORT="+strconv.Itoa(l.port))
	if _, set := os.LookupEnv("OMP_NUM_THREADS"); !set {
		all = append(all, "OMP_NUM_THREADS="+strconv.Itoa(max(1, park.Cores()/l.ranks)))
	}
	if l.found != "" {
		all = append(all, "JOB_ADDRESS_FILE="+l.found)
	}
	if replaces {
		all = append(all, "JOB_REPLACES="+strconv.Itoa(l.host*l.ranks+local))
	}
	return all
}

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
	if err := cmd.Start(); err != nil {
		closeLines(cmd)
		return nil, fmt.Errorf("rank %d cannot be started: %w", rank, err)
	}
	go func() {
		err := cmd.Wait()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // the rank has ended well, and something that it left prints on
		}
		closeLines(cmd)
		ends <- ended{rank, local, err}
	}()
	return cmd, nil
}

// all starts the ranks and waits for them. If one fails (unless the others go on without it), or
// ctx ends, it ends all others, with the processes that they have started. The result names the
// rank that failed first.
func (l *launch) all(ctx context.Context) error {
	// The ranks get SIGKILL when the thread that has started them ends, for example since this
	// process is killed.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := time.Now()
	var ranks []*exec.Cmd
	ends := make(chan ended, l.ranks+l.replace)
	var prints sync.WaitGroup
	var result, lost error // lost: of a rank without which the others go on
	well := 0
	for local := range l.ranks {
		var cmd *exec.Cmd
		if cmd, result = l.startRank(local, false, &prints, ends); result != nil {
			break
		}
		ranks = append(ranks, cmd)
	}
	var deadline <-chan time.Time
	end := func(s syscall.Signal) {
		for _, cmd := range ranks {
			syscall.Kill(-cmd.Process.Pid, s) // the group may have ended
		}
	}
	if result != nil {
		end(syscall.SIGKILL)
	}
	interrupted, replaced := ctx.Done(), 0
	for left := len(ranks); left > 0; {
		select {
		case e := <-ends:
			left--
			if e.err == nil {
				well++
				continue
			}
			why := fmt.Errorf("rank %d ended after %.1f s: %w", e.rank, time.Since(begun).Seconds(), e.err)
			switch {
			case l.recover && result == nil:
				text := fmt.Sprintf("goccl run: %v; %d others go on", why, left)
				if replaced < l.replace && left > 0 {
					replaced++
					if cmd, err := l.startRank(e.local, true, &prints, ends); err != nil {
						text += fmt.Sprintf(" without a new process: %v", err)
					} else {
						text += fmt.Sprintf(", and a new process (pid %d) comes", cmd.Process.Pid)
						ranks, left = append(ranks, cmd), left+1
					}
				}
				printLine(l.err, text+"\n")
				if lost == nil {
					lost = why
				}
			case result == nil:
				result = why
				end(syscall.SIGTERM)
				deadline = time.After(l.grace)
			}
		case <-interrupted:
			interrupted = nil
			if result == nil {
				result = errors.New("interrupted; the ranks were ended")
			}
			end(syscall.SIGTERM)
			deadline = time.After(l.grace)
		case <-deadline:
			end(syscall.SIGKILL)
		}
	}
	if result == nil && well == 0 {
		result = lost
	}
	if result != nil || lost != nil {
		end(syscall.SIGKILL) // what the ranks have started
	}
	prints.Wait()
	return result
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
