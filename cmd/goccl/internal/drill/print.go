package drill

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
)

// printer prints the matrix, row by row as they are complete.
type printer struct {
	out     io.Writer
	verbose bool
	json    *json.Encoder // nil: cells are not printed
	cells   []cell

	mu      sync.Mutex
	done    map[cell]*outcome
	skipped map[string]string // why, by road
	printed int               // cells of printed rows
	left    []string
}

// column is one of the matrix.
type column struct {
	road  string
	ranks int
}

func (p *printer) columns() (all []column) {
	for _, c := range p.cells {
		if col := (column{c.Road, c.Ranks}); !slices.Contains(all, col) {
			all = append(all, col)
		}
	}
	slices.SortFunc(all, func(a, b column) int {
		if a.road != b.road {
			return slices.Index(roads, a.road) - slices.Index(roads, b.road)
		}
		return a.ranks - b.ranks
	})
	return all
}

func (p *printer) add(o *outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[o.Cell] = o
	if p.json != nil {
		p.json.Encode(o)
	}
	p.rows()
}

// skip marks the cells of a road that cannot run.
func (p *printer) skip(road, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.skipped == nil {
		p.skipped = map[string]string{}
	}
	p.skipped[road] = why
	p.rows()
}

// matrixRow is a line of the matrix: a fault with a collective.
type matrixRow struct {
	fault string
	coll  dtype.Collective
}

// rows prints the rows that have become complete.
func (p *printer) rows() {
	for p.printed < len(p.cells) {
		at := matrixRow{p.cells[p.printed].Fault, p.cells[p.printed].Coll}
		end := p.printed
		for end < len(p.cells) && (matrixRow{p.cells[end].Fault, p.cells[end].Coll}) == at {
			c := p.cells[end]
			if p.done[c] == nil && p.skipped[c.Road] == "" {
				return
			}
			end++
		}
		p.row(at, p.cells[p.printed:end])
		p.printed = end
	}
}

const firstColumns = "%-18s %-15s"

func (p *printer) row(at matrixRow, cells []cell) {
	columns := p.columns()
	if p.printed == 0 {
		fmt.Fprintf(p.out, "seconds until the slowest survivor has its error (of a round, where there must be none)\n"+
			firstColumns, "fault", "collective")
		for _, col := range columns {
			fmt.Fprintf(p.out, "%9s", fmt.Sprint(col.road, " ", col.ranks))
		}
		fmt.Fprintln(p.out)
	}
	fmt.Fprintf(p.out, firstColumns, at.fault, collName(at.coll))
	for _, col := range columns {
		text := ""
		for _, c := range cells {
			if (column{c.Road, c.Ranks}) != col {
				continue
			}
			switch o := p.done[c]; {
			case o == nil:
				text = "-"
			case o.Passed:
				text = fmt.Sprintf("%.2f", o.Slowest.Seconds())
			default:
				text = "FAIL"
			}
		}
		fmt.Fprintf(p.out, "%9s", text)
	}
	fmt.Fprintln(p.out)
	for _, c := range cells {
		if o := p.done[c]; o != nil && p.verbose {
			p.tell(o)
		}
	}
}

// tell prints what the ranks of a cell have reported.
func (p *printer) tell(o *outcome) {
	verdict := "passed"
	if !o.Passed {
		verdict = "FAILED"
	}
	who := ""
	if !faultNamed(o.Cell.Fault).wire {
		verb := "has"
		if len(o.Culprits) > 1 {
			verb = "have"
		}
		who = fmt.Sprintf(", %s %s the fault", ranksText(o.Culprits), verb)
	}
	fmt.Fprintf(p.out, "  %v%s: %s in %s\n", o.Cell, who, verdict, seconds(o.Took))
	for _, what := range o.Complaints {
		fmt.Fprintf(p.out, "    %s\n", what)
	}
	for _, t := range o.Ranks {
		fmt.Fprintf(p.out, "    rank %d: %s\n", t.Rank, t)
		if !o.Passed && t.Stderr != "" {
			fmt.Fprintf(p.out, "      printed: %s\n", t.Stderr)
		}
	}
}

// String says what a rank has reported.
func (t *testimony) String() string {
	if t.End == nil {
		return "nothing: " + t.Silence
	}
	var text string
	switch f := t.End.Error; {
	case f == nil:
		text = fmt.Sprintf("well after %d rounds, the slowest of %s", t.End.Rounds, seconds(t.End.Slowest))
	case t.End.During != "":
		text = fmt.Sprintf("after %s, in %s: %s", seconds(t.Since), t.End.During, f.Text)
	default:
		text = fmt.Sprintf("after %s: %s", seconds(t.Since), f.Text)
	}
	if a := t.After; a != nil {
		text += fmt.Sprintf("; closed in %s", seconds(a.Close))
	}
	return text
}

// end prints what has failed, and the totals.
func (p *printer) end(took time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	passed, failed, skipped := 0, 0, 0
	var again []string
	for _, c := range p.cells {
		o := p.done[c]
		if o != nil && len(o.Stalls) > 0 {
			again = append(again, fmt.Sprintf("%v: %v", c, o.Stalls))
		}
		switch {
		case o == nil:
			skipped++
		case o.Passed:
			passed++
		default:
			failed++
			if failed == 1 {
				fmt.Fprintln(p.out)
			}
			p.tell(o)
		}
	}
	if len(again) > 0 {
		fmt.Fprintf(p.out, "\nrun again, since the machine stalled: %s\n", strings.Join(again, "; "))
	}
	for road, why := range p.skipped {
		fmt.Fprintf(p.out, "\nskipped: %s: %s\n", road, why)
	}
	if len(p.left) > 0 {
		fmt.Fprintf(p.out, "\nleft behind: %s\n", strings.Join(p.left, ", "))
	}
	fmt.Fprintf(p.out, "\n%d cells passed, %d failed, %d skipped in %.0f s\n", passed, failed, skipped, took.Seconds())
	switch {
	case failed > 0:
		return fmt.Errorf("%d cells of the drill failed", failed)
	case len(p.left) > 0:
		return errors.New("the drill has left something behind")
	}
	return nil
}
