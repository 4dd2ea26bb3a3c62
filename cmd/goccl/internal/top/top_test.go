package top

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/internal/live"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(Command()), args, &out)
	return out.String(), err
}

func TestTopTable(t *testing.T) {
	stuck := live.Group{Name: "0", Description: "default_pg", Rank: 0, Size: 3, Routes: "2 by shm", Seq: 17, Busy: true,
		Op: "all_reduce of 4 x f32 (sum), seq 17", For: 12.3, Waits: []int{1},
		Pace: &live.Pace{Operations: 1500, Bytes: 2.5e9}}
	idle := live.Group{Name: "0", Description: "default_pg", Rank: 1, Size: 3, JobRank: 1, Routes: "2 by shm",
		Seq: 16, For: 12.34}
	receiving := live.Group{Name: "1", Description: "undefined", Rank: 0, Size: 2, JobRank: 1, Routes: "1 by tcp",
		Seq: 3, Messages: 4, Op: "recv of 4 x f32 from rank 1, tag 0, seq 4", Busy: true, For: 3, Waits: []int{1},
		Lost: []int{1}}
	answers := []answer{
		{pid: 12, process: &live.Process{Pid: 12, Groups: []live.Group{idle, receiving}, More: 2}},
		{pid: 11, process: &live.Process{Pid: 11, Groups: []live.Group{stuck}}},
		{pid: 13, process: &live.Process{Pid: 13, Groups: []live.Group{
			{Name: "0", Description: "default_pg", Rank: 2, Size: 3, JobRank: 2, Seq: 17, Failure: "bad\x1b[2J\nnews"},
			{Name: "2", Size: 2, Seq: 5, Busy: true, Waits: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		}}},
		{pid: 14, process: &live.Process{Pid: 14}},
		{pid: 15, err: fault.New(fault.Timeout, "process 15 does not answer: it is stopped")},
	}
	var out strings.Builder
	require.NoError(t, print(answers, &out))
	want, err := os.ReadFile("testdata/top.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
}

func TestTopRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"top x":             `"x" is not the number of a process`,
		"top 0":             `"0" is not the number of a process`,
		"top --every 1ms":   "--every 1ms: want 100ms or more",
		"top 1 --every 1ms": "--every 1ms: want 100ms or more",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, want, args)
	}
}
