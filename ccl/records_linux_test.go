package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/flight"
)

// recordsChild is a program in Go that knows nothing of records, but for the signal that it sends
// itself.
func recordsChild() error {
	opts, err := ccl.OptionsFromEnv()
	if err != nil {
		return err
	}
	comm, err := ccl.Init(background, opts)
	if err != nil {
		return err
	}
	defer comm.Close()
	if err := ccl.Barrier(background, comm); err != nil {
		return err
	}
	file := opts.RecordFile + os.Getenv("RANK")
	syscall.Kill(os.Getpid(), syscall.SIGUSR2)
	for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(os.Rename(file, "at_signal_"+os.Getenv("RANK")), ccl.Barrier(background, comm)); err != nil {
		return err
	}
	if comm.Rank() == 1 {
		ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		err = ccl.Barrier(ctx, comm)
	} else {
		_, err = ccl.Recv(background, comm, make([]byte, 1), 1, 0) // until the group ends
	}
	if !errors.Is(err, ccl.Timeout) {
		return fmt.Errorf("the group ended by %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("the failure left no record: %w", err)
	}
	if os.Remove(file); ccl.Barrier(background, comm) == nil {
		return errors.New("a group that has ended went on")
	}
	if _, err := os.Stat(file); err == nil {
		return errors.New("the second failure left a record, too")
	}
	return nil
}

// TestRecordsOfPrograms has programs in Go leave records by their environment alone.
func TestRecordsOfPrograms(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	folder := t.TempDir()
	file := filepath.Join(folder, "new", "of_")
	each(t, 2, func(rank int) error {
		cmd := exec.CommandContext(t.Context(), os.Args[0], childArgument, "records")
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port),
			"RANK="+strconv.Itoa(rank), "GOCCL_RECORD_FILE="+file, "GOCCL_TOP=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		require.Regexp(t, `WARN rank - group -: SIGUSR2: the last operations of this rank are in `+file, string(out))
		require.Regexp(t, fmt.Sprintf(`WARN rank %d group world: the last operations of this rank are in %s`, rank, file),
			string(out))
		return nil
	})
	var all []*flight.Record
	for rank := range 2 {
		record, err := flight.ReadFile(filepath.Join(folder, "at_signal_"+strconv.Itoa(rank)))
		require.NoError(t, err)
		all = append(all, record)
	}
	report := flight.Compare(all, nil)
	require.Len(t, report.Groups, 1)
	require.Equal(t, "world", report.Groups[0].Name)
	for _, stand := range report.Groups[0].Stands {
		require.Equal(t, []int64{1, 1}, []int64{stand.Called, stand.Ended}, "%+v", report)
	}
}
