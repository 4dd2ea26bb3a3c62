package ccl_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

var growTimes = flag.Int("grow.times", 2, "how often TestGrowWithDeaths kills a process, by each transport")

// grownTo is what a process reports when it has added up with all that live.
type grownTo struct {
	Rank, Size int
	Seconds    float64 // of Grow
	Error      string
}

// comingSpan is how long ranks wait for newcomers.
const comingSpan = time.Second

// growChild is a rank, or a newcomer: "grow,TRANSPORT,RANK,SIZE,NEWCOMERS,FOLDER"; newcomers have
// the ranks from SIZE on. When it is told to, it grows or joins, and adds up. If a process is lost,
// it goes on with those that are left, and has the newcomers come again.
func growChild(words []string) error {
	rank, _ := strconv.Atoi(words[2])
	size, _ := strconv.Atoi(words[3])
	newcomers, _ := strconv.Atoi(words[4])
	folder := words[5]
	node, err := ccl.NewNode(ccl.NodeOptions{})
	if err != nil {
		return err
	}
	defer node.Close()
	cfg := ccl.Config{Name: "four", Rank: rank, Size: size, Timeout: time.Minute,
		Options: ccl.GroupOptions{Transport: words[1]}}
	ctx, cancel := context.WithTimeout(background, 30*time.Second)
	defer cancel()
	said := bufio.NewReader(os.Stdin)
	var c *ccl.Communicator
	if rank < size {
		if c, err = meetByFiles(ctx, node, cfg, folder); err != nil {
			return err
		}
		address, err := c.Address()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint("address", rank)), []byte(address), 0o600); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	said.ReadString('\n')
	report := grownTo{}
	begun := time.Now()
	if rank < size {
		c, err = growAll(ctx, c, newcomers)
	} else {
		var address []byte
		if address, err = os.ReadFile(filepath.Join(folder, fmt.Sprint("address", rank%size))); err == nil {
			c, err = node.Join(ctx, cfg, string(address))
		}
	}
	report.Seconds = time.Since(begun).Seconds()
	if err == nil {
		c, err = onlyLiving(ctx, c, size+newcomers-1)
	}
	if err == nil {
		report.Rank, report.Size = c.Rank(), c.Size()
	} else {
		report.Error = err.Error()
	}
	text, _ := json.Marshal(report)
	fmt.Printf("%s\n", text)
	io.Copy(io.Discard, said) // all others have their sums
	return nil
}

func meetByFiles(ctx context.Context, node *ccl.Node, cfg ccl.Config, folder string) (*ccl.Communicator, error) {
	endpoint, err := node.Open(cfg)
	if err != nil {
		return nil, err
	}
	addresses, err := byFiles(folder, cfg.Rank, cfg.Size, endpoint.Address())
	if err != nil {
		return nil, err
	}
	return endpoint.Join(ctx, addresses)
}

// growAll grows a group. Where one of its ranks dies, the others go on without it.
func growAll(ctx context.Context, c *ccl.Communicator, newcomers int) (*ccl.Communicator, error) {
	for {
		next, err := c.Grow(ctx, newcomers, comingSpan)
		if !errors.Is(err, ccl.PeerLost) {
			return next, err
		}
		if c, _, err = c.Shrink(ctx); err != nil {
			return nil, err
		}
	}
}

// onlyLiving adds up until a group has the given size: one process dies, and others may come late.
func onlyLiving(ctx context.Context, c *ccl.Communicator, size int) (*ccl.Communicator, error) {
	for {
		err := addUp(ctx, c)
		switch {
		case errors.Is(err, ccl.PeerLost):
			c, _, err = c.Shrink(ctx)
		case err == nil && c.Size() == size:
			return c, nil
		case err == nil && c.Size() < size:
			c, err = growAll(ctx, c, size-c.Size())
		}
		if err != nil {
			return nil, err
		}
	}
}

// TestGrowWithDeaths kills one process at a random moment, a newcomer or a rank of the group, while
// one or three newcomers come to four ranks. All others end in one group, with the right sums.
func TestGrowWithDeaths(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	for _, transport := range growing {
		for _, newcomers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", transport, newcomers), func(t *testing.T) {
				worst := 0.0
				for i := range *growTimes {
					worst = max(worst, growOnce(t, program, transport, newcomers, i%3 == 2))
				}
				t.Logf("the slowest call took %.3f s", worst)
			})
		}
	}
}

func growOnce(t *testing.T, program, transport string, newcomers int, former bool) (worst float64) {
	t.Helper()
	const ranks = 4
	folder := t.TempDir()
	children := make([]*exec.Cmd, ranks+newcomers)
	lines := make([]*bufio.Scanner, len(children))
	inputs := make([]io.WriteCloser, len(children))
	for rank := range children {
		cmd := exec.Command(program, childArgument,
			fmt.Sprintf("grow,%s,%d,%d,%d,%s", transport, rank, ranks, newcomers, folder))
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		children[rank], lines[rank], inputs[rank] = cmd, bufio.NewScanner(out), in
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
		require.True(t, lines[rank].Scan(), "rank %d is not ready", rank)
		require.Equal(t, "ready", lines[rank].Text())
	}
	dead := ranks + rand.IntN(newcomers)
	if former {
		dead = rand.IntN(ranks)
	}
	moment := time.Duration(rand.IntN(int(200 * time.Millisecond)))
	for rank := range children {
		_, err := fmt.Fprintln(inputs[rank])
		require.NoError(t, err)
	}
	time.Sleep(moment)
	require.NoError(t, children[dead].Process.Kill())
	seen := map[int]bool{}
	for rank := range children {
		if rank == dead {
			continue
		}
		what := fmt.Sprintf("process %d died after %v; process %d", dead, moment, rank)
		require.True(t, lines[rank].Scan(), "HANG: %s says nothing", what)
		var report grownTo
		require.NoError(t, json.Unmarshal(lines[rank].Bytes(), &report), "%s: %s", what, lines[rank].Text())
		assert.Empty(t, report.Error, what)
		assert.Equal(t, len(children)-1, report.Size, what)
		assert.False(t, seen[report.Rank], "two groups: %s is rank %d too", what, report.Rank)
		seen[report.Rank] = true
		worst = max(worst, report.Seconds)
	}
	require.False(t, t.Failed())
	return worst
}
