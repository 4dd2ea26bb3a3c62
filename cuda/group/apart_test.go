package group_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cuda/cudatest"
)

// A group that waits for a late rank does not hold up what the program computes in the default
// stream, if there are two hardware queues at least: whatever numbers of streams are made before.
func TestDefaultStreamGoesOn(t *testing.T) {
	var again atomic.Int32 // streams that would have held it up
	t.Run("queues", func(t *testing.T) {
		for _, windows := range []bool{false, true} {
			for _, queues := range []int{2, 3, 8} {
				for ranks := 2; ranks < 6; ranks++ {
					if testing.Short() && ranks%3 != 2 {
						continue
					}
					t.Run(fmt.Sprint(windows, " ", queues, " queues, ", ranks, " ranks"), func(t *testing.T) {
						t.Parallel()
						again.Add(int32(goesOn(t, windows, queues, ranks) - goesOn(t, windows, 0, ranks)))
					})
				}
			}
		}
	})
	require.Positive(t, again.Load())
}

// goesOn makes a group, and returns how many streams a driver has made for it.
func goesOn(t *testing.T, windows bool, queues, ranks int) (made int) {
	device := cudatest.Options{Delay: -1, Stuck: -1, Queues: queues}
	var w []*rank
	if windows {
		w = machine(t, ranks, device, overWindows, memory)
	} else {
		w = world(t, ranks, device, small())
	}
	made = w[0].driver.Calls("cuStreamCreateWithPriority")
	require.False(t, w[0].Crowded())
	op, err := w[0].Enqueue(w[0].reduce(1000), w[0].stream)
	require.NoError(t, err)
	w[0].driver.Settle()
	require.True(t, w[0].computes(t), "%s", w[0].driver.Blocked())
	for _, r := range w[1:] {
		r.begin(t, r.reduce(1000)).Free()
	}
	_, err = op.Wait(hang)
	require.NoError(t, err)
	op.Free()
	end(t, w)
	return made
}

// computes has the default stream copy something that no call uses, and reports whether it does.
func (r *rank) computes(t *testing.T) bool {
	require.NoError(t, r.ctx.Enter(false))
	defer r.ctx.Leave()
	s := r.ctx.Adopt(0)
	require.NoError(t, s.Copy(r.device.Ptr()+1<<20, r.device.Ptr()+2<<20, 8))
	r.driver.Settle()
	done, err := s.Done()
	require.NoError(t, err)
	return done
}

// With one queue the default stream cannot go on, and a process is told so once.
func TestCrowded(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	was := os.Stderr
	os.Stderr = write
	w := machine(t, 2, cudatest.Options{Delay: -1, Queues: 1}, overWindows, memory)
	os.Stderr = was
	require.NoError(t, write.Close())
	output, err := io.ReadAll(read)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(output), "share a hardware queue with the default stream"), "%s", output)
	require.Contains(t, string(output), "WARN")
	require.Contains(t, string(output), "CUDA_DEVICE_MAX_CONNECTIONS")
	require.True(t, w[0].Crowded())
	end(t, w)
}

// A default stream that has work when the group is made tells nothing.
func TestBusyDefaultStream(t *testing.T) {
	driver := cudatest.New(cudatest.Options{Delay: -1, Queues: 1})
	t.Cleanup(driver.Close)
	other, err := driver.Retain(0)
	require.NoError(t, err)
	require.NoError(t, other.Enter(false))
	data, err := other.Alloc(16)
	require.NoError(t, err)
	computes := other.Adopt(0)
	driver.Hold(computes)
	require.NoError(t, computes.Copy(data.Ptr(), data.Ptr()+8, 8))
	w := ranksOn(t, []*cudatest.Driver{driver}, ccl.GroupOptions{CudaRoute: "staged"}, memory)
	require.False(t, w[0].Crowded())
	driver.Release(computes)
	require.NoError(t, computes.Synchronize())
	require.NoError(t, data.Free())
	other.Leave()
	require.NoError(t, other.Release())
	end(t, w)
}
