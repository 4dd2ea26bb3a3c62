package ccl_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/internal/logs"
)

// TestLogger has a handler of the program's own get every line, and none of another level.
func TestLogger(t *testing.T) {
	var text [2]bytes.Buffer
	members := make([]*ccl.Node, 2)
	for rank := range members {
		handler := slog.NewJSONHandler(&text[rank], &slog.HandlerOptions{Level: logs.Trace})
		node, err := ccl.NewNode(ccl.NodeOptions{Logger: slog.New(handler), SocketIfname: "lo"})
		require.NoError(t, err)
		members[rank] = node
	}
	opts := ccl.GroupOptions{Transport: "tcp", Debug: "INFO", Algo: "barrier=dissemination", Topo: "off"}
	comms := join(t, members, opts, "mine")
	each(t, 2, func(rank int) error { return ccl.Barrier(background, comms[rank]) })
	host, err := os.Hostname()
	require.NoError(t, err)
	for rank, node := range members {
		require.NoError(t, node.Close())
		var said []string
		for line := range strings.Lines(text[rank].String()) {
			var r struct {
				Level, Msg, Group string
				Rank              int
			}
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			require.Equal(t, "INFO", r.Level)
			if r.Group != "" {
				require.Equal(t, []any{"mine", rank}, []any{r.Group, r.Rank})
				said = append(said, r.Msg)
			}
		}
		require.Len(t, said, 3)
		require.Equal(t, "goccl "+ccl.Version+": joined 2 ranks: 1 by tcp", said[0])
		require.Regexp(t, fmt.Sprintf(`^host %s \(rank %d\) by tcp, lo \S+:\d+ to \S+:\d+$`, regexp.QuoteMeta(host), 1-rank), said[1])
		require.Equal(t, "barrier: plan dissemination (GOCCL_ALGO)", said[2])
	}
}

// TestDebugFile has the lines of a process in a file.
func TestDebugFile(t *testing.T) {
	folder := t.TempDir()
	node, err := ccl.NewNode(ccl.NodeOptions{DebugFile: filepath.Join(folder, "goccl.%p"), DebugFormat: "json"})
	require.NoError(t, err)
	node.Warn("of the process")
	require.NoError(t, node.Close())
	file := filepath.Join(folder, fmt.Sprintf("goccl.%d", os.Getpid()))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `^\{"time":"[^"]+","level":"WARN","msg":"of the process","host":"[^"]+","pid":\d+\}\n$`, string(text))
	_, err = ccl.NewNode(ccl.NodeOptions{DebugFile: filepath.Join(folder, "no", "folder")})
	require.ErrorIs(t, err, ccl.Invalid)
	require.ErrorContains(t, err, "GOCCL_DEBUG_FILE="+filepath.Join(folder, "no", "folder"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
