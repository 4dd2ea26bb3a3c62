package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// Line is the expression of docs/launch.md.
var line = regexp.MustCompile(`^(\S+) (\S+):(\d+) goccl (WARN|INFO|TRACE) rank (\d+|-) group ([^\s":]+|"(?:[^"\\]|\\.)*"): (.*)$`)

func TestThePageHasTheExpression(t *testing.T) {
	page, err := os.ReadFile("../../docs/launch.md")
	require.NoError(t, err)
	require.Contains(t, string(page), line.String())
}

// written returns the lines of a file that writes into, and the host.
func written(t *testing.T, format string, write func(*slog.Logger)) []string {
	t.Helper()
	folder := t.TempDir()
	lines, end, err := New(format, filepath.Join(folder, "%h.%p.log"))
	require.NoError(t, err)
	write(lines)
	require.NoError(t, end())
	host, err := os.Hostname()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("%s.%d.log", host, os.Getpid())))
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func say(l *slog.Logger, level slog.Level, text string, about ...slog.Attr) {
	l.LogAttrs(context.Background(), level, text, about...)
}

func TestText(t *testing.T) {
	lines := written(t, Text, func(l *slog.Logger) {
		say(l, slog.LevelWarn, "of a rank: it is late", slog.Int(Rank, 3), slog.String(Group, "world"))
		say(l, slog.LevelInfo, "of the process")
		say(l, Trace, "two\nlines", slog.Int(Rank, 0), slog.String(Group, `a: "b"`))
		say(l.With(slog.Int(Rank, 7)).WithGroup("x"), slog.LevelWarn, "of a part", slog.String(Group, ""))
	})
	host, _ := os.Hostname()
	for i, want := range [][4]string{
		{"WARN", "3", "world", "of a rank: it is late"}, {"INFO", "-", "-", "of the process"},
		{"TRACE", "0", `"a: \"b\""`, `two\nlines`}, {"WARN", "7", `""`, "of a part"},
	} {
		parts := line.FindStringSubmatch(lines[i])
		require.NotNil(t, parts, lines[i])
		at, err := time.Parse(time.RFC3339Nano, parts[1])
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.Equal(t, []string{host, fmt.Sprint(os.Getpid()), want[0], want[1], want[2], want[3]}, parts[2:])
	}
	require.Len(t, lines, 4)
}

func TestJSON(t *testing.T) {
	lines := written(t, JSON, func(l *slog.Logger) {
		say(l, slog.LevelWarn, "two\nlines", slog.Int(Rank, 3), slog.String(Group, "world"))
		say(l, Trace, "of the process")
	})
	host, _ := os.Hostname()
	for i, want := range []map[string]any{
		{"level": "WARN", "msg": "two\nlines", "host": host, "pid": float64(os.Getpid()), "rank": 3.0,
			"group": "world"},
		{"level": "TRACE", "msg": "of the process", "host": host, "pid": float64(os.Getpid())},
	} {
		got := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &got))
		_, err := time.Parse(time.RFC3339Nano, got["time"].(string))
		require.NoError(t, err)
		delete(got, "time")
		require.Equal(t, want, got)
	}
	require.Len(t, lines, 2)
}

// TestWhole has many goroutines write lines, which stay whole and are all there.
func TestWhole(t *testing.T) {
	lines := written(t, Text, func(l *slog.Logger) {
		var group sync.WaitGroup
		for rank := range 8 {
			group.Go(func() {
				for range 100 {
					say(l, slog.LevelInfo, strings.Repeat("x", 100), slog.Int(Rank, rank), slog.String(Group, "g"))
				}
			})
		}
		group.Wait()
	})
	require.Len(t, lines, 800)
	for _, each := range lines {
		require.Regexp(t, line, each)
	}
}

func TestExpand(t *testing.T) {
	host, _ := os.Hostname()
	pid := fmt.Sprint(os.Getpid())
	for path, want := range map[string]string{"": "", "a.log": "a.log", "%%%h": "%" + host,
		"/x/%h/%p.log": "/x/" + host + "/" + pid + ".log", "%p%p": pid + pid} {
		got, err := Expand(path)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, path := range []string{"%", "a%x", "%h%"} {
		_, err := Expand(path)
		require.ErrorIs(t, err, fault.Invalid)
		require.ErrorContains(t, err, "%h is the host, %p the process")
	}
}

func TestNoFile(t *testing.T) {
	_, _, err := New(Text, filepath.Join(t.TempDir(), "no", "folder"))
	require.ErrorIs(t, err, fault.System)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = New(JSON, "%z")
	require.ErrorIs(t, err, fault.Invalid)
}

// TestFullFile has a file refuse lines: they go to standard error.
func TestFullFile(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = w
	defer func() { os.Stderr = stderr }()
	file, err := os.Open(os.DevNull) // not for writing
	require.NoError(t, err)
	defer file.Close()
	n, err := (&kept{file: file}).Write([]byte("a line\n"))
	require.NoError(t, err)
	require.Equal(t, 7, n)
	require.NoError(t, w.Close())
	var got bytes.Buffer
	_, err = got.ReadFrom(r)
	require.NoError(t, err)
	require.Equal(t, "a line\n", got.String())
}
