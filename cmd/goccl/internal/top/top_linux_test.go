package top

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/live"
)

// This process is asked through its parent, as a launcher is, and by its number.
func TestTop(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	_, err := run(t, "top", own)
	require.ErrorContains(t, err, "neither process "+own+" nor what it has started has groups of goccl")
	server, err := live.Serve(func() *live.Process {
		return &live.Process{Version: "1", Groups: []live.Group{{Name: "of a test", Size: 2, Seq: 7}}}
	}, nil)
	require.NoError(t, err)
	defer server.Close()
	for _, args := range [][]string{{own}, {strconv.Itoa(os.Getppid())}, {own, own}, {}} {
		out, err := run(t, append([]string{"top", "--once"}, args...)...)
		require.NoError(t, err)
		require.Regexp(t, `(?m)^`+own+` +of a test +0 of 2 +7 +in no call$`, out)
	}
	out, err := run(t, "top", own, "--json")
	require.NoError(t, err)
	var all []live.Process
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Len(t, all, 1)
	require.Equal(t, os.Getpid(), all[0].Pid)
	require.EqualValues(t, 7, all[0].Groups[0].Seq)

	gone := exec.Command("true")
	require.NoError(t, gone.Run())
	_, err = run(t, "top", strconv.Itoa(gone.Process.Pid))
	require.ErrorContains(t, err, "there is no process")
}
