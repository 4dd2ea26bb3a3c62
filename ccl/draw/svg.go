package draw

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// MaxCells is the maximum number of cells, rows times columns, of a picture, and MaxArrows the
// maximum number of arrows.
const (
	MaxCells  = 2048
	MaxArrows = 1 << 14
)

// Options selects what to draw.
type Options struct {
	// Only, if not nil, restricts the picture to what concerns this rank: ranks that exchange
	// nothing with it are left out.
	Only *int
	// Wrong, if not nil, describes what is wrong with the plan: a banner states it, and steps that
	// never happen are marked.
	Wrong *Verdict
}

// SVG draws a plan as a self-contained text, without references to anything outside it. The same
// plan yields the same text.
func SVG(p *plan.Plan, opts Options) (string, error) {
	if opts.Only != nil && (*opts.Only < 0 || *opts.Only >= p.Spec.Ranks) {
		return "", fault.New(fault.Invalid, "rank %d of a plan for %d ranks", *opts.Only, p.Spec.Ranks)
	}
	t, err := follow(p, opts.Wrong)
	if err != nil {
		return "", err
	}
	s := newSheet(t, opts)
	if rows, columns := len(s.ranks), max(t.Rounds, 1); rows*columns > MaxCells {
		if opts.Only != nil {
			return "", fault.New(fault.NotSupported,
				"%v: rank %d and its peers, %d ranks in %d rounds, are too many to draw (%d cells, at most %d): "+
					"use fewer --ranks", p.Spec, *opts.Only, rows, columns, rows*columns, MaxCells)
		}
		return "", fault.New(fault.NotSupported,
			"%v: %d ranks in %d rounds are too many to draw (%d cells, at most %d): "+
				"use fewer --ranks, or draw one rank and its peers with --rank N",
			p.Spec, rows, columns, rows*columns, MaxCells)
	}
	if s.crowded {
		return "", fault.New(fault.NotSupported,
			"%v: more than %d messages are too many to draw: use fewer --ranks, or draw one rank and its peers "+
				"with --rank N", p.Spec, MaxArrows)
	}
	s.place()
	return s.write(), nil
}

// chip is a box that stands for chunks at a rank.
type chip struct {
	label    string
	colours  []int
	reduced  bool // with a plus
	complete bool // with an edge
	hollow   bool // an empty message or a signal: a dot
	never    bool // it never happens: dashed
	blamed   bool // with a red edge
	told     string
}

func (c chip) same(d chip) bool {
	return c.label == d.label && slices.Equal(c.colours, d.colours) && c.reduced == d.reduced &&
		c.complete == d.complete && c.hollow == d.hollow && c.never == d.never && c.blamed == d.blamed
}

// cell is the crossing of a rank's row and a round: the chips that leave and those that arrive.
type cell struct{ leaving, arriving []chip }

// arrow connects chip tail among those leaving row from with chip head among those arriving at row
// to.
type arrow struct {
	round, from, tail, to, head int // from and to are rows
	colour                      int
	style                       string
}

// sheet is a picture being made.
type sheet struct {
	trace  *Trace
	names  naming
	ranks  []int // of each row
	row    map[int]int
	cells  [][]cell // by row, then by round from 1
	arrows []arrow
	drawn  map[arrow]bool // arrows that exist already; an identical arrow is drawn once
	in     [][]chip
	out    [][]chip
	used   map[string]bool // marks that the legend must explain

	crowded bool // there are more than MaxArrows arrows
	wrong   *Verdict
	banner  []string // lines of the banner

	chipWidth, heldWidth, flight, columnWidth int // heldWidth is the width of chips in In and Out
	left, top, width, height                  int // left and top are those of the first round's first row
	inLines, outLines                         int // chips side by side in the columns of In and Out
	perBand                                   int // rounds in a band
	bands                                     []band
}

// band is a group of rounds side by side; bands are placed one below the other, like lines of
// music.
type band struct {
	first, last int   // rounds
	top, bottom int   // of its rows
	middle      []int // of each row
}

func newSheet(t *Trace, opts Options) *sheet {
	s := &sheet{trace: t, wrong: opts.Wrong, names: newNaming(t),
		row: map[int]int{}, drawn: map[arrow]bool{}, used: map[string]bool{}}
	var moves []Move
	present := make([]bool, t.Plan.Spec.Ranks)
	for _, m := range t.Moves {
		if opts.Only != nil && m.From != *opts.Only && m.To != *opts.Only || m.Kind == plan.Copy ||
			m.From == m.To && !m.Reduces {
			continue
		}
		moves = append(moves, m)
		present[m.From], present[m.To] = true, true
	}
	for r, here := range present {
		if opts.Only == nil || here || r == *opts.Only {
			s.row[r] = len(s.ranks)
			s.ranks = append(s.ranks, r)
		}
	}
	if len(s.ranks)*max(t.Rounds, 1) > MaxCells {
		return s // SVG refuses it
	}
	s.cells = make([][]cell, len(s.ranks))
	for i, r := range s.ranks {
		s.cells[i] = make([]cell, t.Rounds+1)
		s.in = append(s.in, s.held(t.In[r]))
		s.out = append(s.out, s.held(t.Out[r]))
	}
	for _, m := range moves {
		if s.add(m); len(s.arrows) > MaxArrows {
			s.crowded = true
			break
		}
	}
	return s
}

// mostHeld is the maximum number of chips that show the contents of a buffer; more chunks share
// chips.
const mostHeld = 32

func (s *sheet) held(values []Value) []chip {
	var chips []chip
	each := (len(values) + mostHeld - 1) / mostHeld
	for len(values) > 0 {
		n := min(each, len(values))
		if s.wrong != nil || values[0].Sum != nil && values[n-1].Sum != nil {
			chips = append(chips, s.chip(values[:n], false))
		}
		values = values[n:]
	}
	return chips
}

func (s *sheet) chip(values []Value, reduced bool) chip {
	c := chip{label: s.names.label(values), reduced: reduced, hollow: len(values) == 0}
	c.complete = len(values) > 0
	for _, v := range values {
		if c.label == unknown {
			return chip{label: unknown}
		}
		c.complete = c.complete && v.Sum != nil && s.names.complete(v)
		if v.Sum == nil {
			continue
		}
		for _, key := range s.names.shown(v) {
			if k := s.names.colour(key); !slices.Contains(c.colours, k) {
				c.colours = append(c.colours, k)
			}
		}
	}
	if len(values) == 1 && values[0].Sum != nil && s.names.all > 1 {
		if terms := values[0].Sum.Terms(); len(terms) <= 64 {
			c.told = strings.Trim(strings.ReplaceAll(fmt.Sprint(terms), " ", "+"), "[]")
		}
	}
	return c
}

func (s *sheet) add(m Move) {
	round := max(m.Round, 1)
	from, to := s.row[m.From], s.row[m.To]
	leaving, arriving := s.chip(m.Carried, false), s.chip(m.Result, m.Reduces)
	leaving.never, arriving.never = m.Never, m.Never
	leaving.blamed, arriving.blamed = m.Blamed, m.Blamed
	s.used["reduced"] = s.used["reduced"] || arriving.reduced && !m.Never
	s.used["never"] = s.used["never"] || m.Never
	s.used["blamed"] = s.used["blamed"] || m.Blamed
	there := &s.cells[to][round]
	does := m.Kind.Traits()
	share := does.From || does.OnlySignals()
	there.arriving = stack(there.arriving, arriving, share)
	head := len(there.arriving) - 1
	if share {
		head = find(there.arriving, arriving)
	}
	if m.From == m.To {
		return
	}
	here := &s.cells[from][round]
	here.leaving = stack(here.leaving, leaving, true)
	a := arrow{round: round, from: from, tail: find(here.leaving, leaving), to: to, head: head,
		colour: -1, style: "message"}
	if len(leaving.colours) > 0 {
		a.colour = leaving.colours[0]
	}
	switch {
	case does.Puts:
		a.style = "put"
	case does.Gets:
		a.style = "get"
	case does.Signals:
		a.style = "signal"
	default:
		if leaving.hollow {
			a.style = "empty"
		}
	}
	if m.Never {
		a.style = "never"
	} else {
		s.used[a.style] = true
	}
	if !s.drawn[a] {
		s.drawn[a] = true
		s.arrows = append(s.arrows, a)
	}
}

func find(chips []chip, c chip) int { return slices.IndexFunc(chips, c.same) }

// stack adds a chip, unless it may be shared and an equal one is there.
func stack(chips []chip, c chip, share bool) []chip {
	if share && find(chips, c) >= 0 {
		return chips
	}
	return append(chips, c)
}

// Dimensions of a picture, in pixels.
const (
	chipHeight = 18
	chipPitch  = 23
	rowGap     = 22 // between rows
	margin     = 16
	nameWidth  = 74
	port       = 9 // between a chip and the edge of its column
	header     = 26
	bandGap    = 18
	buffersGap = 18   // between the rounds and the buffers before and after them
	widest     = 1280 // what a page shows without scaling it down
)

// place computes the positions of everything.
func (s *sheet) place() {
	held := func(buffers [][]chip) (longest int) {
		for _, chips := range buffers {
			longest = max(longest, s.longest(chips))
		}
		return longest
	}
	s.heldWidth = widthOf(max(held(s.in), held(s.out), 1))
	moved := 1
	for i := range s.ranks {
		for _, c := range s.cells[i] {
			moved = max(moved, s.longest(c.leaving), s.longest(c.arriving))
		}
	}
	s.chipWidth = widthOf(moved)
	s.inLines, s.outLines = linesOf(s.in), linesOf(s.out)
	s.flight = min(max(48, 12*len(s.ranks)), 150)
	s.columnWidth = 2*(s.chipWidth+port) + s.flight
	s.left = margin + nameWidth + s.inLines*(s.heldWidth+4) + buffersGap
	s.top = 92

	after := buffersGap + s.outLines*(s.heldWidth+4) + margin
	rounds := max(s.trace.Rounds, 1)
	most := max((widest-s.left-after)/s.columnWidth, 1)
	bands := (rounds + most - 1) / most
	s.perBand = (rounds + bands - 1) / bands
	title, facts := s.title()
	s.width = max(s.left+s.perBand*s.columnWidth+after, 560, 2*margin+10*len([]rune(title)),
		2*margin+7*len([]rune(facts)))
	if s.banner = banner(s.wrong, s.width); s.banner != nil {
		s.top += len(s.banner)*bannerLine + bannerEdge + 8
	}
	y := s.top
	for first := 1; first <= rounds; first += s.perBand {
		b := s.band(first, min(first+s.perBand-1, rounds), y)
		s.bands = append(s.bands, b)
		y = b.bottom + bandGap + header
	}
}

// band computes the heights of the rows of some rounds.
func (s *sheet) band(first, last, top int) band {
	b := band{first: first, last: last, top: top, bottom: top}
	for i := range s.ranks {
		lines := 1
		if first == 1 {
			lines = max(lines, heightOf(s.in[i], s.inLines))
		}
		if last == s.last() {
			lines = max(lines, heightOf(s.out[i], s.outLines))
		}
		for round := first; round <= min(last, s.trace.Rounds); round++ {
			lines = max(lines, len(s.cells[i][round].leaving), len(s.cells[i][round].arriving))
		}
		height := lines*chipPitch + rowGap
		b.middle = append(b.middle, b.bottom+height/2)
		b.bottom += height
	}
	return b
}

// longest returns the length of the longest label, and records which marks the legend must explain.
func (s *sheet) longest(chips []chip) int {
	longest := 0
	for _, c := range chips {
		longest = max(longest, len([]rune(c.label)))
		s.used["complete"] = s.used["complete"] || c.complete && !c.never
		s.used["unknown"] = s.used["unknown"] || c.label == unknown
	}
	return longest
}

// widthOf returns the width of a chip whose label has the given number of characters.
func widthOf(label int) int { return 10 + 7*label + label/4 }

// heightOf returns the number of lines that the chips of a buffer take.
func heightOf(chips []chip, wide int) int { return (len(chips) + max(wide, 1) - 1) / max(wide, 1) }

// linesOf returns the number of chips side by side that makes a buffer about twice as wide as it is
// high.
func linesOf(buffers [][]chip) int {
	most := 0
	for _, b := range buffers {
		most = max(most, len(b))
	}
	if most <= 4 {
		return min(most, 2)
	}
	wide := 1
	for wide*wide < 2*most {
		wide++
	}
	lines := (most + wide - 1) / wide
	return (most + lines - 1) / lines
}
