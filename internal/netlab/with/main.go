// With makes a network of hosts (package hosts) and runs a command in it:
//
//	go run ./internal/netlab/with -hosts 2 -wire rate=1gbit -wire delay=1ms -- COMMAND
//
// The command runs outside the hosts; ip netns exec host0 COMMAND runs on one. The exit code is the
// command's.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goccl/goccl/internal/netlab"
)

// inside is the first argument of the process that makes the network; the network and the command
// follow.
const inside = "make-network"

func main() {
	code, err := begin()
	if err != nil {
		fmt.Fprintln(os.Stderr, "with:", err)
		code = 125
	}
	os.Exit(code)
}

func begin() (int, error) {
	var n netlab.Network
	if len(os.Args) > 3 && os.Args[1] == inside {
		if err := json.Unmarshal([]byte(os.Args[2]), &n); err != nil {
			return 0, err
		}
		if err := n.Make(); err != nil {
			return 0, err
		}
		return run(exec.Command(os.Args[3], os.Args[4:]...))
	}
	flag.IntVar(&n.Hosts, "hosts", 2, "number of hosts")
	flag.Func("wire", "one interface of each host, as rate=1gbit,delay=1ms,loss=1%,flow=100mbit,ipv6 (or plain); "+
		"flow limits each connection, site=2 lets two consecutive hosts each be near, most=1300 the bytes of a packet, drop=1 or refuse=1 what host 1 dials; may come again",
		func(s string) error {
			w, err := parseWire(s)
			n.Wires = append(n.Wires, w)
			return err
		})
	flag.Parse()
	if len(n.Wires) == 0 {
		n.Wires = []netlab.Wire{{}}
	}
	if flag.NArg() == 0 {
		return 0, errors.New("no command; usage: with [flags] -- COMMAND")
	}
	if err := n.Validate(); err != nil {
		return 0, err
	}
	told, err := json.Marshal(n)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("/proc/self/exe", append([]string{inside, string(told)}, flag.Args()...)...)
	if cmd.SysProcAttr, err = netlab.Attributes(); err != nil {
		return 0, err
	}
	cmd.SysProcAttr.Setpgid = false // the terminal's interrupt is for the command too
	runtime.LockOSThread()          // the child ends with the thread that started it
	code, err := run(cmd)
	if cmd.Process == nil {
		err = fmt.Errorf("%w: %s", err, netlab.Hint)
	}
	return code, err
}

// run runs a command with this process's streams and passes signals on to it.
func run(cmd *exec.Cmd) (int, error) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	case errors.As(err, &exit):
		return 128 + int(exit.Sys().(syscall.WaitStatus).Signal()), nil
	}
	return 0, err
}

func parseWire(text string) (w netlab.Wire, err error) {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "plain":
		case "rate":
			w.Rate = value
		case "delay":
			w.Delay, err = time.ParseDuration(value)
		case "site":
			w.Site, err = strconv.Atoi(value)
		case "loss":
			w.Loss, err = strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
			if strings.HasSuffix(value, "%") {
				w.Loss /= 100
			}
		case "flow":
			var mbit float64
			mbit, err = strconv.ParseFloat(strings.TrimSuffix(value, "mbit"), 64)
			w.Flow = int64(mbit * 1e6 / 8)
		case "most":
			w.Most, err = strconv.Atoi(value)
		case "drop", "refuse":
			var host int
			host, err = strconv.Atoi(value)
			if name == "drop" {
				w.Drops = append(w.Drops, host)
			} else {
				w.Refuses = append(w.Refuses, host)
			}
		case "ipv6":
			w.IPv6 = true
		default:
			err = fmt.Errorf("want rate=, delay=, loss=, flow=, most=, drop=, refuse=, ipv6 or plain")
		}
		if err != nil {
			return w, err
		}
	}
	return w, nil
}
