package ccl_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

const childArgument = "ccl-test-child"

func TestMain(m *testing.M) {
	if n := len(os.Args); n > 2 && os.Args[n-2] == childArgument {
		do := child
		switch words := strings.Split(os.Args[n-1], ","); words[0] {
		case "shrink":
			do = func(string) error { return shrinkChild(words) }
		case "idle":
			do = func(string) error { return idleChild(words) }
		case "grow":
			do = func(string) error { return growChild(words) }
		case "records":
			do = func(string) error { return recordsChild() }
		case "share":
			do = func(string) error { return shareChild() }
		}
		if err := do(os.Args[n-1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// deaths are the operations that two ranks repeat until one of them is killed. next runs one of
// them and returns its error.
var deaths = map[string]struct {
	elements int
	next     func(c *ccl.Communicator, x []float32) error
	turns    int // turns of the rank that is killed; 0: no limit
}{
	"kept": {2, func(c *ccl.Communicator, x []float32) error {
		return ccl.AllReduce(background, c, x, x, ccl.Sum)
	}, 0},
	"asleep": {2, func(c *ccl.Communicator, x []float32) error {
		return ccl.AllReduce(background, c, x, x, ccl.Sum)
	}, 100},
	"pieces": {16 << 20, func(c *ccl.Communicator, x []float32) error {
		return ccl.AllReduce(background, c, x, x, ccl.Sum)
	}, 0},
	"registered": {16 << 20, func(c *ccl.Communicator, x []float32) error {
		return ccl.AllReduce(background, c, x, x, ccl.Sum)
	}, 0},
	"posted": {4 << 20, func(c *ccl.Communicator, x []float32) error {
		return posted(c, x, func(w *ccl.Work) error { return w.Wait(background) })
	}, 0},
	"unattended": {4 << 20, func(c *ccl.Communicator, x []float32) error {
		return posted(c, x, unattended)
	}, 0},
	"expedited": {4 << 20, func(c *ccl.Communicator, x []float32) error {
		return posted(c, x, func(w *ccl.Work) error {
			w.Expedite()
			return unattended(w)
		})
	}, 0},
	"messages": {100_000, func(c *ccl.Communicator, x []float32) error {
		if c.Rank() == 0 {
			return errors.Join(ccl.Send(background, c, x, 1, 1), receive(c, x))
		}
		return errors.Join(receive(c, x), ccl.Send(background, c, x, 0, 1))
	}, 0},
}

func receive(c *ccl.Communicator, x []float32) error {
	_, err := ccl.Recv(background, c, x, 1-c.Rank(), 1)
	return err
}

// unattended leaves an operation to the progress thread.
func unattended(w *ccl.Work) error {
	for {
		if done, err := w.Done(); done {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// posted keeps three operations in flight at a time.
func posted(c *ccl.Communicator, x []float32, wait func(*ccl.Work) error) error {
	var works []*ccl.Work
	var failed error
	third := len(x) / 3
	for i := range 3 {
		work, err := c.Start(allReduceCall(x[i*third : (i+1)*third]))
		if err != nil {
			failed = err
			break
		}
		works = append(works, work)
	}
	for _, work := range works {
		if err := wait(work); err != nil && failed == nil {
			failed = err
		}
		work.Free()
	}
	return failed
}

// memoryOf returns the memory that a rank gives to the operation of a death. For "registered" its
// peer reads this memory in place.
func memoryOf(node *ccl.Node, name string) ([]float32, error) {
	n := deaths[name].elements
	if name != "registered" {
		return make([]float32, n), nil
	}
	memory, err := node.Alloc(4 * n)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(memory))), n), nil
}

// child is rank 1 of a group of two, in a process of its own, until it is killed.
func child(name string) error {
	node, err := ccl.NewNode(ccl.NodeOptions{})
	if err != nil {
		return err
	}
	c, err := meet(node, 1, os.Stdin, func(address []byte) { fmt.Printf("%s\n", address) })
	if err != nil {
		return err
	}
	death := deaths[name]
	x, err := memoryOf(node, name)
	if err != nil {
		return err
	}
	for turn := 0; death.turns == 0 || turn < death.turns; turn++ {
		if err := death.next(c, x); err != nil {
			return err
		}
	}
	select {}
}

// meet joins this rank with the rank of another process, whose address arrives as a line.
func meet(node *ccl.Node, rank int, in *os.File, say func(address []byte)) (*ccl.Communicator, error) {
	return meetAs(node, ccl.Config{Name: "two", Rank: rank, Size: 2}, in, say)
}

func meetAs(node *ccl.Node, cfg ccl.Config, in *os.File, say func(address []byte)) (*ccl.Communicator, error) {
	endpoint, err := node.Open(cfg)
	if err != nil {
		return nil, err
	}
	say(endpoint.Address())
	lines := bufio.NewReaderSize(in, ccl.MaxAddress)
	theirs, err := lines.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%w after %q", err, theirs)
	}
	addresses := [][]byte{endpoint.Address(), endpoint.Address()}
	addresses[1-cfg.Rank] = []byte(strings.TrimSpace(theirs))
	return endpoint.Join(background, addresses)
}

// processorTime returns the processor time that this process has used so far.
func processorTime(t testing.TB) time.Duration {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// quiet fails if this process continues to use more than the given share of a processor. Work that
// the Go runtime still has to do may come first, and takes its time beside other processes.
func quiet(t *testing.T, span time.Duration, share float64) {
	t.Helper()
	var used time.Duration
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		before := processorTime(t)
		time.Sleep(span)
		used = processorTime(t) - before
		if used < time.Duration(share*float64(span)) {
			t.Logf("used %v in %v", used, span)
			return
		}
	}
	t.Errorf("somebody spins: used %v in %v", used, span)
}

// TestKilledRank kills a rank in the middle of operations of each kind. The other rank must learn
// which rank has died, and use no processor after that, though its group stays open.
func TestKilledRank(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	var survivors []*ccl.Node
	defer func() {
		for _, node := range survivors {
			node.Close()
		}
	}()
	for name, death := range deaths {
		t.Run(name, func(t *testing.T) {
			node, err := ccl.NewNode(ccl.NodeOptions{})
			require.NoError(t, err)
			survivors = append(survivors, node)
			cmd := exec.Command(program, childArgument, name)
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer cmd.Wait()
			defer cmd.Process.Kill()
			c, err := meet(node, 0, out.(*os.File), func(address []byte) { fmt.Fprintf(in, "%s\n", address) })
			require.NoError(t, err)

			var turns atomic.Int32
			failed := make(chan error, 1)
			go func() {
				x, err := memoryOf(node, name)
				for err == nil {
					if err = death.next(c, x); err == nil {
						turns.Add(1)
					}
				}
				if name == "registered" && x != nil {
					err = errors.Join(err, node.FreePointer(unsafe.Pointer(unsafe.SliceData(x))))
				}
				failed <- err
			}()
			least := int32(4)
			if death.turns > 0 {
				least = int32(death.turns)
			}
			for began := time.Now(); turns.Load() < least; time.Sleep(time.Millisecond) {
				require.Less(t, time.Since(began), deadline, "HANG before anybody was killed")
			}
			time.Sleep(3 * time.Millisecond)
			if death.turns > 0 {
				quiet(t, 200*time.Millisecond, 0.05) // waits for a peer that does not come, without a timeout
			}
			require.NoError(t, cmd.Process.Kill())
			select {
			case err = <-failed:
			case <-time.After(3 * time.Second):
				t.Fatal("HANG: nobody told the survivor")
			}
			require.ErrorIs(t, err, ccl.PeerLost)
			var f *ccl.Error
			require.ErrorAs(t, err, &f)
			require.Equal(t, 1, f.Peer)
			require.ErrorContains(t, err, "rank 1")
			require.ErrorContains(t, err, fmt.Sprint("process ", cmd.Process.Pid))
			quiet(t, 100*time.Millisecond, 0.03)
			require.ErrorIs(t, ccl.Barrier(background, c), ccl.PeerLost, "the group has ended")
		})
	}
	quiet(t, time.Second, 0.01)
}
