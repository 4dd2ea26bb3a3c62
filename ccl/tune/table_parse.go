package tune

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

// Header is the first line of a table.
const Header = "goccl tune table 2"

// MaxTable is the largest text of a table, in bytes; maxRows is the most rows.
const (
	MaxTable = 1 << 20
	maxRows  = 2048
)

// word is a word of a line, and the column where it begins.
type word struct {
	text   string
	column int // from 1
}

// words cuts a line, without its comment, at white space.
func words(line string) []word {
	line, _, _ = strings.Cut(line, "#")
	var all []word
	for at := 0; at < len(line); {
		if line[at] == ' ' || line[at] == '\t' || line[at] == '\r' {
			at++
			continue
		}
		end := at
		for end < len(line) && line[end] != ' ' && line[end] != '\t' && line[end] != '\r' {
			end++
		}
		all = append(all, word{line[at:end], at + 1})
		at = end
	}
	return all
}

// columns names the words of a row, for errors.
var columns = [...]string{"collective", "ranks", "oversubscribed", "hosts", "size", "algorithm"}

// ParseTable parses a table. Its error is a fault.Invalid with the text "table:LINE:COLUMN:
// reason".
func ParseTable(text []byte) (*Table, error) {
	if len(text) > MaxTable {
		return nil, refuse(1, 1, "the file is too large; a table has at most %d bytes", MaxTable)
	}
	t := &Table{}
	begun, rows, number := false, 0, 0
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		number++
		row := words(string(line))
		switch {
		case len(row) == 0:
		case !begun:
			if begun = joined(row) == Header; !begun {
				return nil, refuse(number, row[0].column, "want %q first, then rows", Header)
			}
		default:
			e, column, err := parseRow(row)
			if err != nil {
				return nil, refuse(number, column, "%v", err)
			}
			if rows++; rows > maxRows {
				return nil, refuse(number, 1, "too many rows; a table has at most %d", maxRows)
			}
			earlier := t.each[e.Coll]
			for i := range earlier {
				if earlier[i].covers(&e) {
					return nil, refuse(number, row[0].column,
						"this row is never used, line %d comes first for all that it is for", earlier[i].line)
				}
			}
			e.line = number
			t.each[e.Coll] = append(earlier, e)
		}
	}
	if !begun {
		return nil, refuse(1, 1, "want %q first, then rows", Header)
	}
	return t, nil
}

func joined(row []word) string {
	texts := make([]string, len(row))
	for i, w := range row {
		texts[i] = w.text
	}
	return strings.Join(texts, " ")
}

func refuse(line, column int, format string, args ...any) error {
	return fault.New(fault.Invalid, "table:%d:%d: %s", line, column, fmt.Sprintf(format, args...))
}

// parseRow parses a row. With an error it returns the column of that error.
func parseRow(row []word) (e entry, column int, err error) {
	if len(row) != len(columns) {
		at := row[min(len(row), len(columns)+1)-1] // the last word, or the first one too many
		return e, at.column, fmt.Errorf("a row has %d words (%s), this one has %d",
			len(columns), strings.Join(columns[:], ", "), len(row))
	}
	var r Row
	for i, parse := range [len(columns)]func(string) error{
		func(s string) error { return parseCollective(s, &r.Coll) },
		func(s string) error { return parseRanks(s, &r) },
		func(s string) error { return parseCondition(s, &r.Oversubscribed) },
		func(s string) error { return parseHosts(s, &r.Hosts) },
		func(s string) error {
			if err := parseRowSize(s, &r.Bytes); err != nil || r.Bytes == AnySize || Sized(r.Coll) {
				return err
			}
			return fmt.Errorf("not all ranks know the size of %v; want any", r.Coll)
		},
		func(s string) error { r.Algorithm = s; e, err = compile(r); return err },
	} {
		if err := parse(row[i].text); err != nil {
			return e, row[i].column, fmt.Errorf("%s %q: %w", columns[i], row[i].text, err)
		}
	}
	return e, 0, nil
}

func parseCollective(text string, coll *dtype.Collective) (err error) {
	if *coll, err = dtype.ParseCollective(text); err != nil || !coll.Valid() {
		return fmt.Errorf("want one of %s", names(dtype.Collectives()))
	}
	return nil
}

func parseRanks(text string, r *Row) error {
	var ok bool
	if r.First, r.Last, ok = parseSpan(text, 2); !ok {
		return fmt.Errorf("want 2, 3-4 or 9+, from 2 to %d ranks", maxRanks)
	}
	return nil
}

func parseHosts(text string, h *Hosts) error {
	if text == conditions[Any] {
		return nil
	}
	var ok bool
	if h.First, h.Last, ok = parseSpan(text, 1); !ok {
		return fmt.Errorf("want 1, 2-4, 2+ or any, from 1 to %d hosts", maxRanks)
	}
	return nil
}

// parseSpan parses a range of numbers from least to maxRanks.
func parseSpan(text string, least int) (first, last int, ok bool) {
	one, other, isRange := strings.Cut(text, "-")
	open := false
	if !isRange {
		one, open = strings.CutSuffix(text, "+")
		other = one
	}
	first, ok1 := count(one)
	last, ok2 := count(other)
	ok = ok1 && ok2 && first >= least && last >= first && last <= maxRanks
	if open {
		last = Unbounded
	}
	return first, last, ok
}

// count parses a number of digits only.
func count(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}

func parseCondition(text string, c *Condition) error {
	for i, name := range conditions {
		if text == name {
			*c = Condition(i)
			return nil
		}
	}
	return fmt.Errorf("want %s", strings.Join(conditions[:], ", "))
}

func parseRowSize(text string, size *int64) error {
	if text == "any" {
		*size = AnySize
		return nil
	}
	var err error
	if *size, err = humanize.ParseSize(text); err != nil {
		return fmt.Errorf("want %s; or any", humanize.SizeForm)
	}
	return nil
}
