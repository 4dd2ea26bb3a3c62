package pgbackend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/flight"
	"github.com/goccl/goccl/internal/signals"
)

// recorded makes a group of two ranks with other options than world. Their names differ, so that
// one process can have both in its record.
func recorded(t *testing.T, options string) []*Group {
	t.Helper()
	groups, addresses := make([]*Group, 2), make([][]byte, 2)
	for rank := range groups {
		g, err := Open(Config{Name: fmt.Sprintf("%s%d", t.Name(), rank), Rank: rank, Size: 2, Timeout: forever,
			Shim: "test", Options: options})
		require.NoError(t, err)
		t.Cleanup(func() { g.Close() })
		groups[rank], addresses[rank] = g, g.Address()
	}
	for _, err := range each(t, groups, []int{0, 1}, func(g *Group) error { return g.Join(addresses) }) {
		require.NoError(t, err)
	}
	return groups
}

// watched sets what happens when a group listens to a signal, for one test.
func watched(t *testing.T, watch func(syscall.Signal, func()) (bool, error)) {
	t.Helper()
	t.Cleanup(signals.Use(watch))
}

func TestRecordOnSignal(t *testing.T) {
	var asked []syscall.Signal
	handled := true // by the program
	var came func()
	watched(t, func(number syscall.Signal, told func()) (bool, error) {
		asked, came = append(asked, number), told
		return !handled, nil
	})
	file := filepath.Join(t.TempDir(), "new", "trace_0")
	for _, options := range []string{"", "GOCCL_RECORDER=16\nGOCCL_RECORD_SIGNAL=none"} {
		require.NoError(t, recorded(t, options)[0].RecordTo(file))
	}
	require.Empty(t, asked)
	groups := recorded(t, "GOCCL_RECORDER=16")
	require.NoError(t, groups[0].RecordTo(file))
	handled = false
	require.NoError(t, groups[0].RecordTo(file))
	require.NoError(t, groups[1].RecordTo(file))
	require.Equal(t, []syscall.Signal{syscall.SIGUSR2, syscall.SIGUSR2}, asked, "once it is handled, nobody asks")
	require.ErrorIs(t, groups[0].RecordTo(""), fault.Invalid)
	require.ErrorIs(t, groups[0].RecordTo(strings.Repeat("a", longestPath+1)), fault.Invalid)

	for _, err := range each(t, groups, []int{0, 1}, func(g *Group) error {
		return g.Run(&ccl.Call{Coll: dtype.AllReduce, Type: dtype.U8, Op: dtype.Max, In: bytesOf(8), Out: bytesOf(8)})
	}) {
		require.NoError(t, err)
	}
	work := start(t, groups[0], ccl.Call{Coll: dtype.Broadcast, Root: 1, Out: bytesOf(5)})
	defer work.Free()
	came()
	record, err := flight.ReadFile(file)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), record.Written, time.Minute)
	report := flight.Compare([]*flight.Record{record}, nil)
	require.Len(t, report.Groups, 2)
	require.Equal(t, t.Name()+"0", report.Groups[0].Name)
	stand := report.Groups[0].Stands[0]
	require.Equal(t, "in seq 2, broadcast of 5 x u8, root 1", stand.Now)
	require.Equal(t, []int64{2, 1}, []int64{stand.Called, stand.Ended})
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing but the record")

	require.NoError(t, os.Remove(file))
	for _, g := range groups {
		require.NoError(t, g.Close())
	}
	came()
	require.NoFileExists(t, file, "of groups that are closed there is nothing to record")
}

func TestCannotListen(t *testing.T) {
	watched(t, func(syscall.Signal, func()) (bool, error) { return false, errors.New("of a test") })
	g := recorded(t, "GOCCL_RECORDER=16\nGOCCL_RECORD_SIGNAL=SIGUSR1")[0]
	require.ErrorContains(t, g.RecordTo(filepath.Join(t.TempDir(), "trace_0")), "SIGUSR1 cannot be watched")
}
