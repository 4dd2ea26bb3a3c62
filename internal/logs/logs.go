// Package logs writes the lines that the library has for people, in a form that programs can read,
// too: each has the time, the host, the process, the level, and the rank and the group that it is
// about.
//
//	2026-11-29T09:15:43.123456Z node3:4711 goccl WARN rank 2 group world: all_reduce has waited for 10 s
//
// A line that is about no rank has - for rank and group. As JSON, a line is an object with the keys
// time, level, msg, host, pid, rank and group.
package logs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
)

// Trace is the level below Info of which there is a line for calls.
const Trace = slog.LevelDebug

// Formats.
const (
	Text = "text"
	JSON = "json"
)

// Keys of what a line is about.
const (
	Rank  = "rank"
	Group = "group"
)

// Levels are the levels by their names.
var Levels = map[string]slog.Level{"WARN": slog.LevelWarn, "INFO": slog.LevelInfo, "TRACE": Trace}

func nameOf(level slog.Level) string {
	for name, each := range Levels {
		if each == level {
			return name
		}
	}
	return ""
}

// New returns what writes lines in a format to a file, or to standard error if path is "". In path
// %h is the name of this host, %p the number of this process, and %% a %. Lines are added to a file
// that is there. close closes the file.
func New(format, path string) (lines *slog.Logger, close func() error, err error) {
	out, close := io.Writer(os.Stderr), func() error { return nil }
	if path != "" {
		if path, err = Expand(path); err != nil {
			return nil, nil, err
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			return nil, nil, fault.Wrap(fault.System, err, "lines cannot be written to a file")
		}
		out, close = &kept{file: file}, file.Close
	}
	host, _ := os.Hostname()
	if format == JSON {
		h := slog.NewJSONHandler(out, &slog.HandlerOptions{Level: Trace, ReplaceAttr: named})
		return slog.New(h.WithAttrs([]slog.Attr{slog.String("host", host), slog.Int("pid", os.Getpid())})), close, nil
	}
	return slog.New(&text{out: out, mu: new(sync.Mutex), from: fmt.Sprintf("%s:%d", host, os.Getpid())}), close, nil
}

// Expand replaces %h, %p and %% in the name of a file.
func Expand(path string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(path, "%")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		switch {
		case strings.HasPrefix(after, "h"):
			host, _ := os.Hostname()
			b.WriteString(host)
		case strings.HasPrefix(after, "p"):
			b.WriteString(strconv.Itoa(os.Getpid()))
		case strings.HasPrefix(after, "%"):
			b.WriteString("%")
		default:
			return "", fault.New(fault.Invalid, "%%%.1s is unknown: %%h is the host, %%p the process, %%%% a %%", after)
		}
		path = after[1:]
	}
}

// named gives levels their names in lines of JSON.
func named(_ []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey {
		a.Value = slog.StringValue(nameOf(level))
	}
	return a
}

// kept writes to a file as long as that takes lines, and to standard error what it does not take.
type kept struct{ file *os.File }

func (k *kept) Write(line []byte) (int, error) {
	if n, err := k.file.Write(line); err == nil {
		return n, nil
	}
	return os.Stderr.Write(line)
}

// text is the handler that writes lines of text.
type text struct {
	from  string
	attrs []slog.Attr

	mu  *sync.Mutex // lines are whole
	out io.Writer
}

func (t *text) Enabled(context.Context, slog.Level) bool { return true }

func (t *text) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *t
	with.attrs = append(t.attrs[:len(t.attrs):len(t.attrs)], attrs...)
	return &with
}

// WithGroup returns t: no line of the library has groups of attributes.
func (t *text) WithGroup(string) slog.Handler { return t }

func (t *text) Handle(_ context.Context, r slog.Record) error {
	about := map[string]string{Rank: "-", Group: "-"}
	note := func(a slog.Attr) bool {
		about[a.Key] = a.Value.String()
		return true
	}
	for _, a := range t.attrs {
		note(a)
	}
	r.Attrs(note)
	group := about[Group]
	if group == "" || strings.ContainsAny(group, " :\"\n\t") {
		group = strconv.Quote(group)
	}
	line := fmt.Sprintf("%s %s goccl %s rank %s group %s: %s\n", r.Time.UTC().Format(timeForm), t.from, nameOf(r.Level),
		about[Rank], group, strings.ReplaceAll(r.Message, "\n", `\n`))
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := io.WriteString(t.out, line)
	return err
}

const timeForm = "2006-01-02T15:04:05.000000Z"
