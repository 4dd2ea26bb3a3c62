package ccl_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

var shrinkTimes = flag.Int("shrink.times", 2, "how often TestShrinkAfterDeaths kills ranks, by each transport")

// shrunk is what a survivor reports.
type shrunk struct {
	Members []int
	Seconds float64
	Sum     float32
	Error   string
}

// shrinkChild is one rank: "shrink,TRANSPORT,RANK,SIZE,FOLDER". It sums until the group fails, and
// then goes on with the ranks that are left.
func shrinkChild(words []string) error {
	rank, _ := strconv.Atoi(words[2])
	size, _ := strconv.Atoi(words[3])
	node, err := ccl.NewNode(ccl.NodeOptions{})
	if err != nil {
		return err
	}
	defer node.Close()
	endpoint, err := node.Open(ccl.Config{Name: "eight", Rank: rank, Size: size, Timeout: time.Minute,
		Options: ccl.GroupOptions{Transport: words[1]}})
	if err != nil {
		return err
	}
	addresses, err := byFiles(words[4], rank, size, endpoint.Address())
	if err != nil {
		return err
	}
	c, err := endpoint.Join(background, addresses)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	x := make([]float32, 1000)
	for err == nil {
		err = ccl.AllReduce(background, c, x, x, ccl.Sum)
	}
	report := shrunk{}
	if !errors.Is(err, ccl.PeerLost) {
		report.Error = err.Error()
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	next, members, err := c.Shrink(ctx)
	report.Seconds, report.Members = time.Since(begun).Seconds(), members
	if err == nil {
		one := []float32{1}
		err = ccl.AllReduce(background, next, one, one, ccl.Sum)
		report.Sum = one[0]
	}
	if err != nil {
		report.Error += "; " + err.Error()
	}
	text, _ := json.Marshal(report)
	fmt.Printf("%s\n", text)
	bufio.NewReader(os.Stdin).ReadString('\n') // all others have their sums
	return nil
}

// byFiles exchanges addresses in a folder.
func byFiles(folder string, rank, size int, own []byte) ([][]byte, error) {
	name := func(rank int) string { return filepath.Join(folder, strconv.Itoa(rank)) }
	if err := os.WriteFile(name(rank)+".new", own, 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(name(rank)+".new", name(rank)); err != nil {
		return nil, err
	}
	all := make([][]byte, size)
	missing := func(address []byte) bool { return address == nil }
	for begun := time.Now(); slices.ContainsFunc(all, missing); time.Sleep(time.Millisecond) {
		if time.Since(begun) > deadline {
			return nil, errors.New("some ranks have no address")
		}
		for r := range all {
			all[r], _ = os.ReadFile(name(r))
		}
	}
	return all, nil
}

// TestShrinkAfterDeaths kills 1 to 3 of 8 ranks within 10 ms, rank 0 among them or not. All others
// find the same ranks, and go on.
func TestShrinkAfterDeaths(t *testing.T) {
	const ranks = 8
	program, err := os.Executable()
	require.NoError(t, err)
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			worst := 0.0
			for time := range *shrinkTimes {
				worst = max(worst, shrinkOnce(t, program, transport, ranks, 1+time%3, time%2 == 0))
			}
			t.Logf("the slowest call of Shrink took %.3f s", worst)
		})
	}
}

func shrinkOnce(t *testing.T, program, transport string, ranks, deaths int, first bool) (worst float64) {
	t.Helper()
	folder := t.TempDir()
	children := make([]*exec.Cmd, ranks)
	lines := make([]*bufio.Scanner, ranks)
	for rank := range children {
		cmd := exec.Command(program, childArgument, fmt.Sprintf("shrink,%s,%d,%d,%s", transport, rank, ranks, folder))
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		children[rank], lines[rank] = cmd, bufio.NewScanner(out)
		defer func() {
			in.Close()
			cmd.Process.Kill()
			cmd.Wait()
		}()
	}
	hangs := time.AfterFunc(deadline, func() {
		for _, cmd := range children {
			cmd.Process.Kill()
		}
	})
	defer hangs.Stop()
	for rank := range children {
		require.True(t, lines[rank].Scan(), "rank %d has not joined", rank)
		require.Equal(t, "ready", lines[rank].Text())
	}
	dead := rand.Perm(ranks)[:deaths]
	if first && !slices.Contains(dead, 0) {
		dead[0] = 0
	}
	var members []int
	for rank := range ranks {
		if !slices.Contains(dead, rank) {
			members = append(members, rank)
		}
	}
	for _, rank := range dead {
		time.Sleep(time.Duration(rand.IntN(int(10*time.Millisecond) / deaths)))
		require.NoError(t, children[rank].Process.Kill())
	}
	for _, rank := range members {
		require.True(t, lines[rank].Scan(), "HANG: ranks %v died; rank %d says nothing", dead, rank)
		var report shrunk
		require.NoError(t, json.Unmarshal(lines[rank].Bytes(), &report), "rank %d: %s", rank, lines[rank].Text())
		assert.Empty(t, report.Error, "rank %d, ranks %v died", rank, dead)
		assert.Equal(t, members, report.Members, "rank %d, ranks %v died", rank, dead)
		assert.Equal(t, float32(len(members)), report.Sum, "rank %d", rank)
		worst = max(worst, report.Seconds)
	}
	require.False(t, t.Failed())
	return worst
}

// TestShrinkOfAHealthyGroup leaves out a rank that lives. A rank that neither calls Shrink nor dies
// is named.
func TestShrinkOfAHealthyGroup(t *testing.T) {
	const ranks, out = 4, 1
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			comms := join(t, nodesFor(t, ranks, opts.Transport), opts, "four")
			ctx, cancel := context.WithTimeout(background, deadline)
			defer cancel()
			each(t, ranks, func(rank int) error {
				c := comms[rank]
				if rank == out {
					return nil
				}
				next, members, err := c.Shrink(ctx, out)
				if err != nil {
					return err
				}
				defer next.Close()
				own := slices.Index(members, c.Rank())
				if !slices.Equal(members, []int{0, 2, 3}) || next.Size() != 3 || next.Rank() != own {
					return fmt.Errorf("members %v, rank %d of %d", members, next.Rank(), next.Size())
				}
				x := []float32{float32(c.Rank())}
				if err := ccl.AllReduce(ctx, next, x, x, ccl.Sum); err != nil || x[0] != 5 {
					return fmt.Errorf("sum %v, %w", x[0], err)
				}
				return nil
			})
			short, stop := context.WithTimeout(background, 300*time.Millisecond)
			defer stop()
			errs := make([]error, ranks)
			each(t, ranks, func(rank int) error {
				if rank != out {
					_, _, errs[rank] = comms[rank].Shrink(short)
				}
				return nil
			})
			for rank, err := range errs {
				if rank != out {
					var f *ccl.Error
					require.ErrorAs(t, err, &f)
					require.ErrorIs(t, err, ccl.Timeout)
					require.Contains(t, f.Culprits(), out, "%v", err)
				}
			}
			_, _, err := comms[0].Shrink(ctx, 0)
			require.ErrorIs(t, err, ccl.Invalid)
			require.True(t, strings.Contains(err.Error(), "cannot be left out"), "%v", err)
		})
	}
}

// TestShrinkIsCalledAgain after ctx has ended: by all ranks when the missing one has come, or
// without it.
func TestShrinkIsCalledAgain(t *testing.T) {
	const ranks, late = 4, 2
	for _, transport := range []string{"shm", "tcp"} {
		for _, without := range [][]int{nil, {late}} {
			t.Run(fmt.Sprintf("%s/%v", transport, without), func(t *testing.T) {
				opts := ccl.GroupOptions{Transport: transport}
				comms := join(t, nodesFor(t, ranks, opts.Transport), opts, "four")
				ctx, cancel := context.WithTimeout(background, deadline)
				defer cancel()
				each(t, ranks, func(rank int) error {
					if rank == late {
						return nil
					}
					short, stop := context.WithTimeout(background, time.Duration(20+20*rank)*time.Millisecond)
					defer stop()
					if _, _, err := comms[rank].Shrink(short); !errors.Is(err, ccl.Timeout) {
						return fmt.Errorf("%w, want a timeout", err)
					}
					return nil
				})
				each(t, ranks, func(rank int) error {
					if slices.Contains(without, rank) {
						return nil
					}
					next, members, err := comms[rank].Shrink(ctx, without...)
					if err != nil {
						return err
					}
					defer next.Close()
					if len(members) != ranks-len(without) {
						return fmt.Errorf("members %v", members)
					}
					return ccl.Barrier(ctx, next)
				})
			})
		}
	}
}

// TestShrinkEndsWithTheGroup closes a group whose Shrink has ended for want of a rank. The others
// leave it out.
func TestShrinkEndsWithTheGroup(t *testing.T) {
	const ranks, leaves = 3, 0
	for _, transport := range []string{"shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			opts := ccl.GroupOptions{Transport: transport}
			comms := join(t, nodesFor(t, ranks, opts.Transport), opts, "three")
			ctx, cancel := context.WithTimeout(background, deadline)
			defer cancel()
			short, stop := context.WithTimeout(background, 20*time.Millisecond)
			defer stop()
			_, _, err := comms[leaves].Shrink(short)
			require.ErrorIs(t, err, ccl.Timeout)
			require.NoError(t, comms[leaves].Close())
			_, _, err = comms[leaves].Shrink(ctx)
			require.ErrorIs(t, err, ccl.Closed)
			each(t, ranks, func(rank int) error {
				if rank == leaves {
					return nil
				}
				next, members, err := comms[rank].Shrink(ctx, leaves)
				if err != nil {
					return err
				}
				defer next.Close()
				if !slices.Equal(members, []int{1, 2}) {
					return fmt.Errorf("members %v", members)
				}
				return ccl.Barrier(ctx, next)
			})
		})
	}
}
