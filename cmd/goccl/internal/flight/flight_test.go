package flight

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/flight"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

const recordsDir = "../../../../ccl/flight/testdata/records"

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(Command()), append([]string{"flight"}, args...), &out)
	return out.String(), err
}

func TestFlight(t *testing.T) {
	out, err := run(t, recordsDir, "--prefix", "trace_")
	require.ErrorAs(t, err, new(cli.Reported), "the report is enough")
	want, err := os.ReadFile("testdata/flight.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), out)
	out, err = run(t, "--json", filepath.Join(recordsDir, "trace_0"), filepath.Join(recordsDir, "trace_1"))
	require.ErrorAs(t, err, new(cli.Reported))
	var report flight.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, []int{2}, report.Missing)
	require.Contains(t, report.Conclusion, "rank 1 has not called seq 2")
	require.Contains(t, report.Conclusion, "there is no record of rank 2")

	wrong := filepath.Join(t.TempDir(), "trace_2")
	require.NoError(t, os.WriteFile(wrong, []byte("nonsense"), 0o644))
	_, err = run(t, wrong)
	require.ErrorContains(t, err, wrong+" is not a record: byte 0: opcode 0x6e is none of those")
	out, err = run(t, filepath.Join(recordsDir, "trace_0"), wrong)
	require.ErrorAs(t, err, new(cli.Reported))
	require.Contains(t, out, wrong+" is not a record: byte 0")

	for _, args := range [][]string{{}, {recordsDir, filepath.Join(recordsDir, "trace_0")}, {recordsDir, "--dance"}} {
		_, err = run(t, args...)
		require.Error(t, err)
		require.NotErrorAs(t, err, new(cli.Reported))
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
	out, err := run(t, dir)
	require.NoError(t, err)
	require.Contains(t, out, "the records of ranks 0-2 do not differ")
}
