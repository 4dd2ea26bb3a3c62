package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/pgbackend/flight"
)

const recordsDir = "../../pgbackend/flight/testdata/records"

func TestFlight(t *testing.T) {
	out, err := run(t, "flight", recordsDir, "--prefix", "trace_")
	require.ErrorAs(t, err, new(told), "the report is enough")
	golden(t, "testdata/flight.txt", out)
	out, err = run(t, "flight", "--json", filepath.Join(recordsDir, "trace_0"), filepath.Join(recordsDir, "trace_1"))
	require.ErrorAs(t, err, new(told))
	var report flight.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, []int{2}, report.Missing)
	require.Contains(t, report.Conclusion, "rank 1 has not called seq 2")
	require.Contains(t, report.Conclusion, "there is no record of rank 2")

	wrong := filepath.Join(t.TempDir(), "trace_2")
	require.NoError(t, os.WriteFile(wrong, []byte("nonsense"), 0o644))
	_, err = run(t, "flight", wrong)
	require.ErrorContains(t, err, wrong+" is not a record: byte 0: opcode 0x6e is none of those")
	out, err = run(t, "flight", filepath.Join(recordsDir, "trace_0"), wrong)
	require.ErrorAs(t, err, new(told))
	require.Contains(t, out, wrong+" is not a record: byte 0")

	for _, args := range [][]string{{}, {recordsDir, filepath.Join(recordsDir, "trace_0")}, {recordsDir, "--dance"}} {
		_, err = run(t, append([]string{"flight"}, args...)...)
		require.Error(t, err)
		require.NotErrorAs(t, err, new(told))
	}
}

// The records of a job in which nothing is wrong.
func TestFlightWell(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(recordsDir, "trace_1")) // it has called what it has, and ended it
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"trace_0", "trace_1", "trace_2"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	out, err := run(t, "flight", dir)
	require.NoError(t, err)
	require.Contains(t, out, "the records of ranks 0-2 do not differ")
}
