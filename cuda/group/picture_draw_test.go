package group_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// pictureStyle is that of the drawings of plans (package ccl/draw).
const pictureStyle = `<style>text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px;fill:#1f2328}
.bg{fill:#fff}.band{fill:#f3f5f8}.bar{fill:#d9dee5}.title{font-size:16px;font-weight:600}.soft{fill:#59636e}.mid{text-anchor:middle}
.box{fill:#fff;stroke-width:1.4}path.a{fill:none;stroke-width:1.6}path.w{stroke-dasharray:4 3}.h{stroke:none}
.n{fill:#59636e;stroke:#59636e}.k0{fill:#2563c9;stroke:#2563c9}.k1{fill:#b45309;stroke:#b45309}
.l0{fill:#475569;stroke:#475569}.l1{fill:#7c3aed;stroke:#7c3aed}.l2{fill:#15803d;stroke:#15803d}.l3{fill:#c81e3a;stroke:#c81e3a}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#0d1117}.band{fill:#161c25}.bar{fill:#303945}.soft{fill:#9aa5b1}.box{fill:#0d1117}
.n{fill:#9aa5b1;stroke:#9aa5b1}.k0{fill:#6ea8fe;stroke:#6ea8fe}.k1{fill:#f0a35e;stroke:#f0a35e}
.l0{fill:#a3b1c6;stroke:#a3b1c6}.l1{fill:#b79bff;stroke:#b79bff}.l2{fill:#5fd18a;stroke:#5fd18a}.l3{fill:#ff8593;stroke:#ff8593}}
</style>
`

// Dimensions of a picture, in pixels. Rank 1 is on the right, as if in a mirror.
const (
	edge      = 16
	gutter    = 24 // for the arrows of events, outside of the boxes
	boxWidth  = 236
	boxHeight = 28
	rowPitch  = 38
	toBars    = 52 // from a box to the first bar
	barPitch  = 66
	barWidth  = 10
	toMiddle  = 44
	picture   = 2 * (edge + gutter + boxWidth + toBars + (columns-1)*barPitch + toMiddle)
	above     = 120 // the first row
	apart     = 9   // lines of one row
)

type canvas struct{ strings.Builder }

func (c *canvas) put(format string, args ...any) {
	fmt.Fprintf(c, format, args...)
	c.WriteByte('\n')
}

// side returns an x of rank 0, or the same of rank 1.
func side(rank, x int) int {
	if rank == 0 {
		return x
	}
	return picture - x
}

func barX(p place) int {
	return side(p.rank, edge+gutter+boxWidth+toBars+p.column*barPitch)
}

func boxEdge(rank int) int { return side(rank, edge+gutter+boxWidth) }

func rowY(row int) int { return above + row*rowPitch }

// draw returns the picture of what two ranks do.
func draw(title, facts, route string, steps []*step) string {
	rows := arrange(steps)
	slices.SortFunc(steps, func(a, b *step) int { return cmp.Or(a.rank-b.rank, a.row-b.row) })
	names := []string{"your stream", "the stream of the group"}
	if route == "staged" {
		names = []string{"your stream", "the stream to the host", "the stream to the device", "the processor"}
	}
	bottom := rowY(rows-1) + rowPitch/2 + 4
	height := bottom + 64
	c := &canvas{}
	c.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`aria-labelledby="title desc">`, picture, height, picture, height)
	c.put(`<title id="title">%s</title>`, title)
	c.put(`<desc id="desc">%s</desc>`, facts)
	c.WriteString(pictureStyle)
	c.put(`<rect class="bg" width="%d" height="%d"/>`, picture, height)
	c.put(`<text class="title" x="%d" y="28">%s</text>`, edge, title)
	c.put(`<text class="soft" x="%d" y="48">%s</text>`, edge, facts)
	memory := (&reader{route: route}).columnNames()
	for rank := range 2 {
		c.put(`<text class="mid" x="%d" y="92" font-weight="600">rank %d</text>`,
			side(rank, edge+gutter+boxWidth/2), rank)
		c.put(`<text class="mid" x="%d" y="72" font-weight="600">memory of rank %d</text>`,
			barX(place{rank, columnBuffer}), rank)
		for column, name := range memory {
			x := barX(place{rank, column})
			c.put(`<text class="soft mid" x="%d" y="92">%s</text>`, x, name)
			c.put(`<rect class="bar" x="%d" y="%d" width="%d" height="%d" rx="3"/>`,
				x-barWidth/2, above-rowPitch/2+2, barWidth, bottom-above+rowPitch/2-2)
		}
	}
	for _, s := range steps {
		c.connections(s)
	}
	for _, s := range steps {
		c.box(s)
	}
	c.legend(names, bottom+26)
	c.put("</svg>")
	return c.String()
}

// arrange gives each step a row of its own in its rank, behind what it comes after, and returns how
// many there are.
func arrange(steps []*step) (rows int) {
	var queues [2][lanes][]*step
	for _, s := range steps {
		s.row = -1
		queues[s.rank][s.lane] = append(queues[s.rank][s.lane], s)
	}
	later := func(s *step) bool { return s.row < 0 || s.row == rows }
	for left := len(steps); left > 0; rows++ {
		for rank := range queues {
			best, progress := -1, 0
			for lane := range queues[rank] {
				queue := queues[rank][lane]
				i := slices.IndexFunc(queue, func(s *step) bool { return s.row < 0 })
				if i < 0 || slices.ContainsFunc(queue[i].after, later) {
					continue
				}
				if best < 0 || i < progress {
					best, progress = lane, i
				}
			}
			if best >= 0 {
				queues[rank][best][progress].row = rows
				left--
			}
		}
		if rows > 100 {
			panic("steps wait for each other")
		}
	}
	return rows
}

// connections draws what a step reads, writes and waits for.
func (c *canvas) connections(s *step) {
	y, box := rowY(s.row), boxEdge(s.rank)
	across := acrossY(s) // lines to and from the other rank
	back := 2*y - across // and a second one of this rank
	switch {
	case s.event != nil:
		c.event(s)
	case s.word != nil && s.word.wait:
		x := barX(place{s.rank, columnWords})
		from := rowY(s.word.writer.row)
		if s.word.writer.rank != s.rank {
			from = acrossY(s.word.writer)
		}
		c.put(`<path class="a k1" style="stroke-width:%d" d="M%d %dV%d"/>`, barWidth/2, x, from, y)
		c.line(x, box, y, "k1", true)
	case s.word != nil && s.word.page == s.rank:
		c.line(box, barX(place{s.rank, columnWords}), y, "k1", false)
	case s.word != nil:
		c.line(box, barX(place{s.word.page, columnWords}), across, "k1", false)
	case s.with:
		slot := barX(s.reads[0])
		c.line(slot, box, y, "k0", false)
		c.line(box, slot, y+apart, "k0", false)
		c.line(picture/2, boxEdge(1-s.rank), y-apart, "k0", false) // and the other rank the other half
	case strings.HasPrefix(s.text, "copy"):
		c.line(barX(s.reads[0]), barX(s.writes[0]), y, "k0", false)
	default:
		for _, p := range s.reads {
			if p.rank == s.rank {
				c.line(barX(p), box, y, "k0", false)
			} else {
				c.line(barX(p), box, across, "k0", false)
			}
		}
		for _, p := range s.writes {
			at := back
			if len(s.reads) == 0 {
				at = y
			}
			c.line(box, barX(p), at, "k0", false)
		}
	}
}

// acrossY is where lines between a step and the other rank are.
func acrossY(s *step) int { return rowY(s.row) + (2*s.rank-1)*apart }

// line draws an arrow to the left or to the right; it begins with a dot.
func (c *canvas) line(from, to, y int, colour string, waits bool) {
	back := 8
	if to < from {
		back = -8
	}
	class := ""
	if waits {
		class = " w"
	}
	c.put(`<circle class="h %s" cx="%d" cy="%d" r="3"/><path class="a%s %s" d="M%d %dH%d"/>`+
		`<path class="h %s" d="M%d %dl%d -4v8z"/>`, colour, from, y, class, colour, from, y, to-back, colour, to, y, -back)
}

// event draws the arrow from where an event is recorded to where it is waited for.
func (c *canvas) event(s *step) {
	from, to := rowY(s.event.row), rowY(s.row)
	out, x := -14, side(s.rank, edge+gutter)
	if s.rank == 1 {
		out = 14
	}
	c.put(`<path class="a n" d="M%d %dh%dV%dh%d"/><path class="h n" d="M%d %dl%d -4v8z"/>`,
		x, from, out, to, -out/2, x, to, out/2)
}

func (c *canvas) box(s *step) {
	x, y := edge+gutter, rowY(s.row)-boxHeight/2
	stripe := x
	if s.rank == 1 {
		x = picture - x - boxWidth
		stripe = x + boxWidth - 6
	}
	c.put(`<rect class="box l%d" style="fill:none" x="%d" y="%d" width="%d" height="%d" rx="4"/>`,
		s.lane, x, y, boxWidth, boxHeight)
	c.put(`<rect class="h l%d" x="%d" y="%d" width="6" height="%d" rx="3"/>`, s.lane, stripe, y, boxHeight)
	c.put(`<text class="mid" x="%d" y="%d">%s</text>`, x+boxWidth/2, y+boxHeight/2+4, s.text)
}

func (c *canvas) legend(names []string, y int) {
	x := edge + gutter
	for lane, name := range names {
		c.put(`<rect class="h l%d" x="%d" y="%d" width="6" height="18" rx="3"/><text x="%d" y="%d">%s</text>`,
			lane, x, y-9, x+12, y+4, name)
		x += 34 + 6*len(name)
	}
	x, y = edge+gutter, y+26
	for _, each := range []struct {
		colour, name string
		waits        bool
	}{{"k0", "data", false}, {"k1", "a word is written", false}, {"k1", "a word is waited for", true}} {
		c.line(x, x+36, y, each.colour, each.waits)
		c.put(`<text x="%d" y="%d">%s</text>`, x+44, y+4, each.name)
		x += 70 + 6*len(each.name)
	}
	c.put(`<path class="a n" d="M%d %dH%d"/><path class="h n" d="M%d %dl-8 -4v8z"/><text x="%d" y="%d">an event</text>`,
		x, y, x+28, x+36, y, x+44, y+4)
}
