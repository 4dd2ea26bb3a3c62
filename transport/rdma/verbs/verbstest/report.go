package verbstest

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// mostReports limits what one mistake in a loop leaves behind.
const mostReports = 64

// reports are mistakes of the program.
type reports struct {
	mu  sync.Mutex
	all []string
}

// mistake reports one, once for each place in the program.
func (r *reports) mistake(format string, args ...any) {
	text := fmt.Sprintf(format, args...) + caller()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) < mostReports && !slices.Contains(r.all, text) {
		r.all = append(r.all, text)
	}
}

const ownFunctions = "github.com/goccl/goccl/transport/rdma/verbs/verbstest."

// caller returns the place from which this package was called, if it was.
func caller() string {
	var places [12]uintptr
	frames := runtime.CallersFrames(places[:runtime.Callers(3, places[:])])
	for {
		frame, more := frames.Next()
		folder, file := path.Split(frame.File)
		if !strings.HasPrefix(frame.Function, ownFunctions) || strings.HasSuffix(file, "_test.go") {
			if !more || frame.Function == "" || strings.HasPrefix(frame.Function, "runtime.") {
				return ""
			}
			return fmt.Sprintf(", at %s/%s:%d", path.Base(folder), file, frame.Line)
		}
		if !more {
			return ""
		}
	}
}

// Reports returns the mistakes so far.
func (n *Network) Reports() []string {
	n.reports.mu.Lock()
	defer n.reports.mu.Unlock()
	return slices.Clone(n.reports.all)
}

// Forget forgets the reports so far.
func (n *Network) Forget() {
	n.reports.mu.Lock()
	defer n.reports.mu.Unlock()
	n.reports.all = nil
}

// Check fails a test with all reports.
func (n *Network) Check(t interface {
	Helper()
	Errorf(format string, args ...any)
}) {
	t.Helper()
	for _, text := range n.Reports() {
		t.Errorf("%s (seed %d)", text, n.o.Seed)
	}
}

// Leaks tells what is not closed, but for what a killed host has had.
func (n *Network) Leaks() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var left []string
	for _, h := range n.hosts {
		for c := range h.contexts {
			if !c.killed.Load() {
				left = append(left, c.String())
				left = append(left, c.left()...)
			}
		}
	}
	slices.Sort(left)
	return left
}
