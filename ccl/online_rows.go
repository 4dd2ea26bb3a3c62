package ccl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/tune"
)

// rows returns the choice of the group for each collective of which something else than the usual
// choice has won, as rows for groups like it, up to the largest size that was tried.
func (t *trials) rows() (rows []tune.Row) {
	for coll, winners := range t.winners {
		largest := int64(0)
		for _, r := range winners {
			largest = max(largest, r.High)
		}
		for low := int64(1); low <= largest; {
			_, high := t.span(dtype.Collective(coll), low)
			r := t.row(dtype.Collective(coll), low, min(high, largest))
			if n := len(rows); n > 0 && rows[n-1].Coll == r.Coll && rows[n-1].Algorithm == r.Algorithm {
				rows = rows[:n-1]
			}
			rows = append(rows, r)
			low = r.Bytes + 1
		}
	}
	return rows
}

// row returns the choice for a size as the row that ends at another one.
func (t *trials) row(coll dtype.Collective, bytes, high int64) tune.Row {
	r := tune.Row{Coll: coll, First: t.group.Size(), Last: t.group.Size(),
		Oversubscribed: tune.If(t.group.Oversubscribed()), Bytes: high}
	if i := t.choose(coll, bytes) - len(t.users); i >= 0 {
		r.Algorithm = t.names[i].Name
	} else { // a plan from a file stays in its file
		r.Algorithm = tune.Choose(tune.Call{Coll: coll, Bytes: bytes}, t.group, &t.wishes)
	}
	r.Hosts.First = len(t.group.Hosts())
	r.Hosts.Last = r.Hosts.First
	return r
}

// writing orders the groups of this process that keep rows in a file.
var writing sync.Mutex

// keepRows puts rows into the table of a file, in place of those for the same groups, and before
// all others.
func keepRows(file string, rows []tune.Row) error {
	writing.Lock()
	defer writing.Unlock()
	all := rows
	switch data, err := readFile("GOCCL_TUNE_OUTPUT", file, tune.MaxTable); {
	case err == nil:
		old, err := tune.ParseTable(data)
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "GOCCL_TUNE_OUTPUT=%s is left as it is", file)
		}
		for _, r := range old.Rows() {
			if !replaced(&r, rows) {
				all = append(all, r)
			}
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	table, err := tune.NewTable(all)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "GOCCL_TUNE_OUTPUT=%s is left as it is", file)
	}
	return replaceFile(file, table.Text())
}

// replaced reports whether rows are for the groups, and the collective, of an older row.
func replaced(old *tune.Row, rows []tune.Row) bool {
	for _, r := range rows {
		r.Bytes, r.Algorithm = old.Bytes, old.Algorithm
		if r == *old {
			return true
		}
	}
	return false
}

// replaceFile writes a file, of which others see the old text or the new one.
func replaceFile(file, text string) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fault.Wrap(fault.System, err, "GOCCL_TUNE_OUTPUT")
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
		return fault.Wrap(fault.System, err, "GOCCL_TUNE_OUTPUT=%s", file)
	}
	return nil
}
