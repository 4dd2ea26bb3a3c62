package ccl_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

// situation is something that goes wrong in a group of two ranks, what they are told, and what to
// do then.
type situation struct {
	name, advice string
	happens      func(s *scene) []error // what ranks are told; others are nil
}

// troubles are the sections of docs/troubleshooting.md.
var troubles = []struct {
	title, about string
	all          []situation
}{
	{"A rank is lost", "Its process has ended, or it does not answer. All later calls of the group fail with the same " +
		"error. `goccl.shrink` goes on without the rank.", []situation{
		{"a rank of the same host gets a signal", "See that rank's output. SIGKILL that nobody has sent mostly is the " +
			"kernel's, for memory: `dmesg`, `memory.events` of the cgroup.",
			func(s *scene) []error { return s.dies("auto", syscall.SIGKILL) }},
		{"a rank of the same host exits", "See that rank's output.",
			func(s *scene) []error { return s.dies("auto", syscall.SIGUSR1) }},
		{"a rank that is reached by TCP gets a signal", "From another host nobody sees how a process has ended. See that " +
			"rank's output.", func(s *scene) []error { return s.dies("tcp", syscall.SIGKILL) }},
		{"a rank is stopped", "It was stopped by a signal or a debugger, its machine hangs, or the network is cut. The " +
			"same is said where a container is frozen.", func(s *scene) []error { return s.dies("auto", syscall.SIGSTOP) }},
		{"a rank leaves the group while others need it", "It has destroyed its group, or has come to its end, before the " +
			"others: they call more than it does.", func(s *scene) []error {
			c := s.group("shm")
			require.NoError(s.t, c[1].Close())
			return []error{c[0].Do(background, s.sum(10))}
		}},
		{"a rank leaves after a message of its has failed", "The first error is that of the message, on the rank that " +
			"left.", func(s *scene) []error {
			c := s.group("shm")
			work, err := c[0].Start(s.sum(10))
			require.NoError(s.t, err)
			defer work.Free()
			late := recvCall(3, 0, 7)
			late.Timeout = short
			require.Error(s.t, c[1].Do(background, late))
			require.NoError(s.t, c[1].Close())
			return []error{work.Wait(background)}
		}},
	}},
	{"A rank does not come to a call", "The timeout is that of the group (`timeout=` of `init_process_group`), or of the " +
		"call. Before it, after `GOCCL_WARN_AFTER`, a WARN says the same.", []situation{
		{"a rank does not call", "It computes, reads data, or has left its loop: see its stack, by `py-spy dump`. Seq is the " +
			"number of its last collective.", func(s *scene) []error {
			c := s.group("shm")
			s.both(c, func(rank int) error { return ccl.Barrier(background, c[rank]) })
			return []error{c[0].Do(background, s.late(s.sum(10)))}
		}},
		{"a later call of that group", "The first error counts, the group is over.", func(s *scene) []error {
			c := s.group("shm")
			require.Error(s.t, c[0].Do(background, s.late(s.sum(10))))
			return []error{c[0].Do(background, s.sum(20))}
		}},
		{"a rank comes when the others have given up", "It is late by more than the timeout. The call is refused, also if " +
			"the data of all others has come: they have failed.", func(s *scene) []error {
			for range 10 { // it may not have heard of that yet
				c := s.group("shm")
				require.Error(s.t, c[0].Do(background, s.late(s.sum(10))))
				time.Sleep(settled)
				if err := c[1].Do(background, s.sum(10)); err != nil {
					return []error{err}
				}
			}
			return nil
		}},
		{"ranks wait in different calls", "Neither is more to blame than the other: their programs differ before these " +
			"calls. `goccl flight` compares what the ranks have called.", func(s *scene) []error {
			c := s.group("shm")
			return s.ranks(func(rank int) error {
				if rank == 1 {
					return c[1].Do(background, recvCall(3, 0, 7))
				}
				return c[0].Do(background, s.late(s.sum(10)))
			})
		}},
		{"a message does not come", "The sender is told in the text: it has not called send, or with another tag.",
			func(s *scene) []error {
				c := s.group("shm")
				return []error{c[0].Do(background, s.late(recvCall(5, 1, 8)))}
			}},
		{"nobody takes a message", "Long messages wait for their receiver: it has not called recv, or with another tag.",
			func(s *scene) []error {
				c := s.group("shm")
				return []error{c[0].Do(background, s.late(sendCall(1<<22, 1, 8)))}
			}},
		{"two ranks receive from each other", "Send first on one of the two, or use `batch_isend_irecv`.",
			func(s *scene) []error {
				c := s.group("shm")
				return s.ranks(func(rank int) error {
					if rank == 1 {
						c[1].Do(background, recvCall(5, 0, 8)) // ends when it is aborted
						return nil
					}
					time.Sleep(settled)
					defer c[1].Abort("this is enough")
					return c[0].Do(background, s.late(recvCall(5, 1, 8)))
				})
			}},
		{"a program waits for a part of the time", "Nothing has failed: wait again.", func(s *scene) []error {
			c := s.group("shm")
			work, err := c[0].Start(s.sum(10))
			require.NoError(s.t, err)
			defer work.Free()
			_, err = work.WaitSlice(short)
			require.NoError(s.t, err)
			return []error{work.Unended()}
		}},
	}},
	{"Ranks call different things", "All ranks of a group make the same collectives, in the same order, with the same " +
		"lengths, types, operators and roots.", []situation{
		{"other lengths", "Mostly a last batch, or a parameter that one rank does not use.", func(s *scene) []error {
			c := s.group("shm")
			return s.ranks(func(rank int) error { return c[rank].Do(background, s.sum(10+rank)) })
		}},
		{"other collectives", "A branch that one rank takes alone, often `if rank == 0`.", func(s *scene) []error {
			c := s.group("shm")
			return s.ranks(func(rank int) error {
				if rank == 1 {
					return ccl.Barrier(background, c[1])
				}
				return c[0].Do(background, s.sum(10))
			})
		}},
		{"a message of another length", "Only the message fails, the group lives on.", func(s *scene) []error {
			c := s.group("shm")
			work, err := c[1].Start(sendCall(4, 0, 2))
			require.NoError(s.t, err)
			defer work.Free()
			return []error{c[0].Do(background, recvCall(5, 1, 2))}
		}},
		{"a root that there is not", "Roots are ranks of the group, not of the job.", func(s *scene) []error {
			return []error{ccl.Broadcast(background, s.group("shm")[0], make([]float32, 3), 2)}
		}},
	}},
	{"The group was ended", "", []situation{
		{"a rank aborts", "The reason is that of whoever has called abort, or of the signal.", func(s *scene) []error {
			c := s.group("shm")
			work, err := c[0].Start(s.sum(10))
			require.NoError(s.t, err)
			defer work.Free()
			c[1].Abort("the loss is not finite")
			return []error{work.Wait(background), ccl.Barrier(background, c[1])}
		}},
		{"a call after the group was closed", "The program uses a group that it has destroyed.", func(s *scene) []error {
			c := s.group("shm")
			require.NoError(s.t, c[0].Close())
			return []error{ccl.Barrier(background, c[0])}
		}},
	}},
	{"Ranks do not join", "They have met, and cannot be linked. How they meet is in [launch.md](launch.md). " +
		"`goccl doctor --paths` tries the paths between hosts without a job.", []situation{
		{"a rank of the same host does not link", "It was stopped, or is busy, between meeting and linking.",
			func(s *scene) []error { return s.joins("shm", nil) }},
		{"a rank does not link by TCP", "As above, or a firewall is between the two.",
			func(s *scene) []error { return s.joins("tcp", nil) }},
		{"nobody listens at a rank's address", "Its process has ended since it came, or has given up. Machines that were " +
			"cloned with their boot id look alike, and are not.", func(s *scene) []error {
			return s.joins("shm", func(node *ccl.Node) { node.Close() })
		}},
		{"the same by TCP", "Its process has ended since it came, or has given up.", func(s *scene) []error {
			return s.joins("tcp", func(node *ccl.Node) { node.Close() })
		}},
		{"ranks with other options", "Set the variable on all hosts, or pass `goccl.Options` on all ranks.",
			func(s *scene) []error {
				a, b := s.endpoint(0, "tcp"), s.endpoint(1, "shm")
				_, err := a.Join(s.soon(), [][]byte{a.Address(), b.Address()})
				return []error{err}
			}},
	}},
}

// chances are the lines of a situation where it is by chance which of them a rank is told.
var chances = map[string][]string{
	"a rank that is reached by TCP gets a signal": {
		"all_reduce of 10 x f32 (sum), seq 1: peer lost (rank 1): tcp: 10.0.0.1:29500 (host a, pid 71) ended the " +
			"connection without a goodbye; its process may have died or been killed; it refuses new connections",
		"all_reduce of 10 x f32 (sum), seq 1: peer lost (rank 1): tcp: the connection to 10.0.0.1:29500 (host a, " +
			"pid 71) broke; its process or host may have died, or the network been cut; it refuses new connections: " +
			"connection reset by peer",
	},
	"a rank of the same host does not link": { // by who has to connect
		notLinked + "shm: its process 71 has not connected to this one; it may not have come to make the group yet",
		notLinked + "shm: process 71 on this host is connected, but has not come to make this group yet",
	},
}

const notLinked = "join: timeout (rank 1): did not connect in time: rank 1 (host a, pid 71); "

const (
	short   = 100 * time.Millisecond
	settled = 150 * time.Millisecond
)

// scene is what a situation has.
type scene struct{ t *testing.T }

func (s *scene) group(transport string) []*ccl.Communicator {
	return group(s.t, transport, 2, ccl.GroupOptions{})
}

func (s *scene) sum(n int) *ccl.Call { return allReduceCall(make([]float32, n)) }

// late makes a call that fails soon.
func (s *scene) late(call *ccl.Call) *ccl.Call {
	call.Timeout = short
	return call
}

// ranks does something on both ranks, and returns their errors.
func (s *scene) ranks(run func(rank int) error) []error { return outcomes(s.t, 2, run) }

func (s *scene) both(c []*ccl.Communicator, run func(rank int) error) {
	for _, err := range s.ranks(run) {
		require.NoError(s.t, err)
	}
}

// dies joins with a rank in a process of its own, which gets a signal while this one waits for it.
func (s *scene) dies(transport string, with syscall.Signal) []error {
	program, err := os.Executable()
	require.NoError(s.t, err)
	node, err := ccl.NewNode(ccl.NodeOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { node.Close() })
	cmd := exec.Command(program, childArgument, "idle,"+transport)
	in, err := cmd.StdinPipe()
	require.NoError(s.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	go cmd.Wait()
	s.t.Cleanup(func() { cmd.Process.Kill() })
	cfg := ccl.Config{Name: "two", Size: 2, Options: ccl.GroupOptions{Transport: transport}}
	c, err := meetAs(node, cfg, out.(*os.File), func(address []byte) { fmt.Fprintf(in, "%s\n", address) })
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Process.Signal(with))
	call := s.sum(10)
	if call.Timeout = deadline; with == syscall.SIGSTOP {
		s.late(call)
	}
	return []error{c.Do(background, call)}
}

// idleChild is rank 1 of such a group: it calls nothing. SIGUSR1 ends it, with a status.
func idleChild(words []string) error {
	node, err := ccl.NewNode(ccl.NodeOptions{})
	if err != nil {
		return err
	}
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGUSR1)
	cfg := ccl.Config{Name: "two", Rank: 1, Size: 2, Options: ccl.GroupOptions{Transport: words[1]}}
	if _, err := meetAs(node, cfg, os.Stdin, func(address []byte) { fmt.Printf("%s\n", address) }); err != nil {
		return err
	}
	<-over
	os.Exit(3)
	return nil
}

func (s *scene) endpoint(rank int, transport string) *ccl.Endpoint {
	e, err := nodes(s.t, 1, ccl.NodeOptions{})[0].Open(ccl.Config{Rank: rank, Size: 2,
		Options: ccl.GroupOptions{Transport: transport}})
	require.NoError(s.t, err)
	return e
}

func (s *scene) soon() context.Context {
	ctx, cancel := context.WithTimeout(background, 1500*time.Millisecond) // within a second both sides dial
	s.t.Cleanup(cancel)
	return ctx
}

// joins joins with a rank that does not, after something has happened to it.
func (s *scene) joins(transport string, happens func(*ccl.Node)) []error {
	a := s.endpoint(0, transport)
	node := nodes(s.t, 1, ccl.NodeOptions{})[0]
	b, err := node.Open(ccl.Config{Rank: 1, Size: 2, Options: ccl.GroupOptions{Transport: transport}})
	require.NoError(s.t, err)
	if happens != nil {
		happens(node)
	}
	_, err = a.Join(s.soon(), [][]byte{a.Address(), b.Address()})
	return []error{err}
}

// general replaces what is different in each run.
var general = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`^goccl: (group [^,]+, rank \d of \d: )?`), ""},
	{regexp.MustCompile(` \[goccl E\d+\]$`), ""},
	{regexp.MustCompile(`\bprocess \d+`), "process 71"},
	{regexp.MustCompile(`\bpid \d+`), "pid 71"},
	{regexp.MustCompile(`host [^, ]+, pid`), "host a, pid"},
	{regexp.MustCompile(`(is in no call since seq \d+)(, \d+\.\d s ago)?`), "$1, 4.0 s ago"},
	{regexp.MustCompile(`(be behind a firewall): .*`), "$1: …"},
	{regexp.MustCompile(`: (\S+: )?dial tcp \S+ connect: `), ": "},
	{regexp.MustCompile(`(\d+\.){3}\d+:\d+|\[[0-9a-f:]+\]:\d+`), "10.0.0.1:29500"},
	{regexp.MustCompile(`10\.0\.0\.1:29500(, 10\.0\.0\.1:29500)+`), "10.0.0.1:29500"},
}

// TestTroubleshooting has all that happen, and writes docs/troubleshooting.md of the first lines of
// the errors.
func TestTroubleshooting(t *testing.T) {
	var page strings.Builder
	page.WriteString(troubleshootingHead)
	inner := regexp.MustCompile(`\bstep \d|\bflag \d|\bplan [0-9a-f]{4}\b|\bsession\b|\bConnect\b|\b[A-Z][a-z]+\.[A-Z]\w+`)
	for _, section := range troubles {
		fmt.Fprintf(&page, "\n## %s\n\n", section.title)
		if section.about != "" {
			fmt.Fprintf(&page, "%s\n\n", section.about)
		}
		page.WriteString("| what happens | what a rank is told | what to do |\n|---|---|---|\n")
		for _, each := range section.all {
			t.Run(each.name, func(t *testing.T) {
				var lines []string
				for _, err := range each.happens(&scene{t}) {
					if err == nil {
						continue
					}
					line, _, _ := strings.Cut(err.Error(), "\n")
					for _, g := range general {
						line = g.what.ReplaceAllString(line, g.by)
					}
					require.NotRegexp(t, inner, line)
					if either := chances[each.name]; either != nil {
						require.Contains(t, either, line)
						lines = append(lines, "`"+strings.Join(either, "`<br>or `")+"`")
						continue
					}
					if said := "`" + line + "`"; !slices.Contains(lines, said) {
						lines = append(lines, said)
					}
				}
				require.NotEmpty(t, lines)
				fmt.Fprintf(&page, "| %s | %s | %s |\n", each.name, strings.Join(lines, "<br>"), each.advice)
			})
		}
	}
	const file = "../docs/troubleshooting.md"
	if flag.Lookup("rewrite").Value.String() == "true" {
		require.NoError(t, os.WriteFile(file, []byte(page.String()), 0o644))
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(page.String()) {
		require.Contains(t, string(have), line, "go test ./ccl -run Troubleshooting -rewrite writes it anew")
	}
	require.Len(t, string(have), page.Len(), "it has lines that are not from here")
}

const troubleshootingHead = `# Troubleshooting

What ranks are told when something goes wrong, by what happened. The texts are real: a test makes all this happen and writes
this page (` + "`go test ./ccl -run Troubleshooting -rewrite`" + `). Each begins with the group and the rank that reports it:
` + "`goccl: group 0, rank 0 of 2:`" + `. Then come the call, the kind of error with the ranks that caused it, what was seen,
and what that may mean; at the end the [code of its class](errors/README.md), as ` + "`[goccl E4]`" + `. "rank 2 reports" means that this rank has heard it from another one.

Numbers of processes, hosts, addresses and times differ, of course.
`
