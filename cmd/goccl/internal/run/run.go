// Package run is goccl run: it starts a command once for each rank, as the launchers of torch do.
package run

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
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
	orphans            *reaper // nil unless this process gets those of others
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
		return withStatus(l.start())
	}
	return c
}

// withStatus gives the error of a rank that has failed the exit status of goccl.
func withStatus(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return cli.Ended{Err: err, Status: statusOf(exit)}
	}
	return err
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
	l.orphans = newReaper()
	signals := make(chan os.Signal, 16)
	for _, s := range forwarded {
		if !signal.Ignored(s) { // by nohup, say: it is not to end the ranks, either
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	var others *hosts
	if l.hosts > 1 && !l.recover { // otherwise they go on without those that fail
		print := func(text string) { printLine(l.err, text) }
		if others, err = meetHosts(l.host, l.hosts, l.address, l.port, print); err != nil {
			return err
		}
		defer others.close()
	}
	return l.all(signals, others)
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
	case l.hosts > 1 && l.port == 1<<16-1:
		return errors.New("--port 65535: with several --hosts the launchers use the port after it")
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
