package cudatest

import (
	"fmt"
	"slices"
)

// Kind is the class of a report.
type Kind string

const (
	Race     Kind = "race"     // two accesses that nothing orders
	Deadlock Kind = "deadlock" // every stream that has work waits
	Address  Kind = "address"  // a copy or a word outside of all memory
	Misuse   Kind = "misuse"   // a call against the contract
)

// Report is a mistake of the program.
type Report struct {
	Kind Kind
	Text string
}

func (r Report) String() string { return string(r.Kind) + ": " + r.Text }

// mostReports limits what one mistake in a loop leaves behind.
const mostReports = 64

// report notes a mistake; the same key only once.
func (d *Driver) report(kind Kind, key, format string, args ...any) {
	key = string(kind) + key
	if d.told[key] || len(d.reports) >= mostReports {
		return
	}
	d.told[key] = true
	d.reports = append(d.reports, Report{kind, fmt.Sprintf(format, args...)})
}

// misuse reports a call against the contract, once for each place in the program.
func (d *Driver) misuse(format string, args ...any) {
	at := here().String()
	text := fmt.Sprintf(format, args...)
	d.report(Misuse, at+text, "%s, at %s", text, at)
}

// Reports returns the mistakes so far.
func (d *Driver) Reports() []Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.reports)
}

// Forget forgets the reports so far. What was reported can be reported again.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reports = nil
	clear(d.told)
}

// Check lets the device do what it can, and fails a test with all reports.
func (d *Driver) Check(t interface {
	Helper()
	Errorf(format string, args ...any)
}) {
	t.Helper()
	d.Settle()
	for _, r := range d.Reports() {
		t.Errorf("%s (seed %d)", r, d.o.Seed)
	}
}
