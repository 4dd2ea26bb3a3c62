package tune

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo"
)

// Table is a list of rows in the order in which they are tried. A nil Table has no rows.
type Table struct {
	each [dtype.Barrier + 1][]entry
}

//go:embed default.table
var defaultText []byte

var defaultTable = func() *Table {
	t, err := ParseTable(defaultText)
	if err != nil {
		panic("default.table: " + err.Error()) // cannot happen: a test parses it too
	}
	return t
}()

// DefaultTable returns the library's own table.
func DefaultTable() *Table { return defaultTable }

// NewTable makes a table of rows. Its error is a fault.Invalid that names the row that is wrong.
func NewTable(rows []Row) (*Table, error) {
	var b strings.Builder
	b.WriteString(Header + "\n")
	for _, r := range rows {
		b.WriteString(r.String() + "\n")
	}
	return ParseTable([]byte(b.String()))
}

// Rows returns all rows, ordered by collective, and for each collective in the order in which they
// are tried.
func (t *Table) Rows() []Row {
	var rows []Row
	if t == nil {
		return nil
	}
	for _, entries := range t.each {
		for _, e := range entries {
			rows = append(rows, e.Row)
		}
	}
	return rows
}

// Text returns the table as the text of a file, without comments.
func (t *Table) Text() string {
	var b strings.Builder
	b.WriteString(Header + "\n")
	for _, r := range t.Rows() {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

// Hash returns a hash of the rows. Comments do not change it.
func (t *Table) Hash() string {
	sum := sha256.Sum256([]byte(t.Text()))
	return fmt.Sprintf("%x", sum[:8])
}

// choose returns the algorithm of the first row that fits, "" if there is none.
func (t *Table) choose(call Call, on *topo.Group, wishes *Wishes) string {
	if t == nil || int(call.Coll) >= len(t.each) {
		return ""
	}
	entries := t.each[call.Coll]
	for i := range entries {
		if e := &entries[i]; call.Bytes <= e.Bytes && e.fits(on, wishes) {
			return e.Algorithm
		}
	}
	return ""
}

// of calls add with each row that a group may use.
func (t *Table) of(on *topo.Group, wishes *Wishes, add func(Row)) {
	if t == nil {
		return
	}
	for _, entries := range t.each {
		for i := range entries {
			if e := &entries[i]; e.fits(on, wishes) {
				add(e.Row)
			}
		}
	}
}
