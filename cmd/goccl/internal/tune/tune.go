// Package tune is goccl tune: what the parts of calls cost, whether predictions agree with
// measurements, and which algorithm is fastest where.
package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/netlab"
)

// Command returns the command.
func Command() *cobra.Command {
	return cli.Group("tune", "measure what calls cost, and which algorithm is fastest where", fit(), check(), measure(), explain(),
		cli.Internal(ranks.Process, func(args []string, _ io.Writer) error { return ranks.Play(args, compareAll) }))
}

// inside is the flag of the process that measures.
const inside = "inside"

// insideFlag adds the flag.
func insideFlag(f *pflag.FlagSet) *bool {
	defer f.MarkHidden(inside)
	return f.Bool(inside, false, "for goccl's own use")
}

// checkSizes refuses sizes that cannot be measured.
func checkSizes(sizes cli.Sizes) error {
	switch least, most := sizes.Ends(); {
	case least < 4:
		return fmt.Errorf("--size: want 4 bytes or more, got %d", least)
	case most > 1<<30:
		return fmt.Errorf("--size: want 1G or less, every rank holds two vectors of that size")
	}
	return nil
}

// rateFlag adds the flag for the rate of the ports of a network.
func rateFlag(f *pflag.FlagSet, byDefault, usage string) *string {
	return cli.Flag(f, "rate", "RATE", byDefault, usage+", as 1gbit or 100mbit; needs ip and tc, and to be root or allowed "+
		"user namespaces", func(text string) (string, error) {
		if !rateForm.MatchString(text) {
			return "", errors.New("want a number and a unit of tc, as 1gbit, 100mbit or 12.5mbps (bytes)")
		}
		return text, nil
	})
}

// rateForm matches a rate above zero that tc understands.
var rateForm = regexp.MustCompile(
	`(?i)^(([0-9]*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.[0-9]*[1-9][0-9]*)([kmgt]i?)?(bit|bps))$`)

// apart measures in a process of its own, with the same flags, so that an interrupt ends that
// process with all of its ranks. If it makes a network, it gets namespaces, which end with it.
func apart(network bool, out io.Writer, command string, f *pflag.FlagSet) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	attributes := ranks.OwnGroup()
	if network {
		if attributes, err = netlab.Attributes(); err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(interrupted, self, append([]string{"tune", command, "--" + inside}, given(f)...)...)
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attributes, out, os.Stderr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	runtime.LockOSThread() // the child ends with the thread that started it
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	exit := (*exec.ExitError)(nil)
	switch {
	case interrupted.Err() != nil:
		return fmt.Errorf("interrupted: %v; the ranks are ended", context.Cause(interrupted))
	case cmd.Process == nil && network:
		return fmt.Errorf("--rate: %v: %s", err, netlab.Hint)
	case errors.As(err, &exit) && exit.Exited():
		return cli.Reported{}
	case err != nil:
		return fmt.Errorf("the process that measures ended: %w", err)
	}
	return nil
}
