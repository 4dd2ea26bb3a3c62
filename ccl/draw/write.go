package draw

import (
	"encoding/xml"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

const style = `text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px;fill:#1f2328}
.bg{fill:#fff}.band{fill:#f3f5f8}.line{stroke:#c4cbd4;stroke-width:1}.title{font-size:16px;font-weight:600}.soft{fill:#59636e}
.chip text,text.chip{font-size:11px;font-weight:600;fill:#fff;text-anchor:middle}.mid{text-anchor:middle}
.edge{fill:none;stroke:#1f2328;stroke-width:2}.ink{fill:#1f2328}.ink text{fill:#1f2328}.plus{stroke:#fff;stroke-width:1.6;fill:none}.ring{stroke:#fff;stroke-width:1.2}
path.a{fill:none;stroke-width:1.8}path.put{stroke-dasharray:8 3}path.get{stroke-dasharray:3 3}path.signal{stroke-dasharray:1 4;stroke-width:1.2}
.n{fill:#59636e;stroke:#59636e}path.h,.c{stroke:none}path.o{fill:#fff;stroke-width:1.4}path.v{fill:none;stroke-width:1.2}
`

const darkStyle = `text{fill:#e6edf3}.bg{fill:#0d1117}.band{fill:#161c25}.line{stroke:#3d4652}.soft{fill:#9aa5b1}
.chip text,text.chip{fill:#0d1117}.edge{stroke:#e6edf3}.ink{fill:#e6edf3}.plus,.ring{stroke:#0d1117}.n{fill:#9aa5b1;stroke:#9aa5b1}path.o{fill:#0d1117}
`

// page collects the text of a picture.
type page struct{ strings.Builder }

func (p *page) put(format string, args ...any) {
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

// escaped returns text escaped for XML; characters that XML cannot represent are replaced.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a Builder never fails
	return b.String()
}

func (s *sheet) write() string {
	var body page
	s.frame(&body)
	for _, a := range s.arrows {
		s.arrow(&body, a)
	}
	s.chips(&body)
	s.legend(&body)

	var page page
	title, facts := s.title()
	page.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`,
		s.width, s.height, s.width, s.height)
	page.put(`<title id="title">%s</title>`, escaped(title))
	page.put(`<desc id="desc">%s. Rows are ranks, columns are rounds, arrows are what one rank gives another.</desc>`,
		escaped(facts))
	more, darkMore := "", ""
	if s.wrong != nil {
		more, darkMore = wrongStyle, darkWrongStyle
	}
	page.put("<style>%s%s%s@media (prefers-color-scheme:dark){%s%s%s}</style>",
		style, more, s.colours(light[:]), darkStyle, darkMore, s.colours(dark[:]))
	page.put(`<rect class="bg" width="%d" height="%d"/>`, s.width, s.height)
	page.put(`<text class="title" x="%d" y="28">%s</text>`, margin, escaped(title))
	page.put(`<text class="soft" x="%d" y="48">%s</text>`, margin, escaped(facts))
	s.verdict(&page)
	page.WriteString(body.String())
	page.put("</svg>")
	return page.String()
}

// colours returns the CSS classes of the colours in use.
func (s *sheet) colours(palette []string) string {
	var b strings.Builder
	for i, c := range palette[:min(s.names.keys, len(palette))] {
		fmt.Fprintf(&b, ".k%d{fill:%s;stroke:%s}", i, c, c)
	}
	b.WriteByte('\n')
	return b.String()
}

// title returns the title of the picture and the main facts about it.
func (s *sheet) title() (title, facts string) {
	p := s.trace.Plan
	title = fmt.Sprintf("%v, %s, %d ranks", p.Spec.Coll, p.Name, p.Spec.Ranks)
	if p.Spec.Shape != (plan.Shape{}) {
		title += fmt.Sprintf(" as %v", p.Spec.Shape)
	}
	if p.Spec.Coll.Rooted() {
		title += fmt.Sprintf(", root %d", p.Spec.Root)
	}
	if far := s.trace.progress(); far != "" {
		return title, far
	}
	facts = count(s.trace.Rounds, "round")
	low, high := slices.Min(s.trace.Sent), slices.Max(s.trace.Sent)
	switch {
	case high == 0:
		facts += "; no data is sent"
	case low == high:
		facts += "; each rank sends " + bytes(high, p.Split)
	default:
		facts += "; a rank sends up to " + bytes(high, p.Split)
	}
	return title, facts
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bytes expresses a number of chunks in units of a block.
func bytes(chunks, split int) string {
	r := big.NewRat(int64(chunks), int64(split))
	if r.IsInt() && r.Num().Int64() == 1 {
		return "m bytes (m: one block)"
	}
	return r.RatString() + "·m bytes (m: one block)"
}

// columnX returns the x coordinate of a round, and bandOf its band.
func (s *sheet) columnX(round int) int { return s.left + (round-1)%s.perBand*s.columnWidth }

func (s *sheet) bandOf(round int) *band { return &s.bands[(round-1)/s.perBand] }

// last returns the round that Out is placed behind; without any round it takes the place of the
// first.
func (s *sheet) last() int { return max(s.trace.Rounds, 1) }

func (s *sheet) outX() int {
	if s.trace.Rounds == 0 {
		return s.left + buffersGap
	}
	return s.columnX(s.last()) + s.columnWidth + buffersGap
}

// frame draws columns, rows and their names.
func (s *sheet) frame(p *page) {
	for round := 1; round <= s.trace.Rounds; round++ {
		x, b := s.columnX(round), s.bandOf(round)
		if round%2 == 1 {
			p.put(`<rect class="band" x="%d" y="%d" width="%d" height="%d"/>`,
				x, b.top-header, s.columnWidth, b.bottom-b.top+header)
		}
		p.put(`<text class="soft mid" x="%d" y="%d">%s</text>`, x+s.columnWidth/2, b.top-9, s.roundName(round))
	}
	if s.inLines > 0 {
		p.put(`<text class="soft mid" x="%d" y="%d">in</text>`, s.left-buffersGap-s.inLines*(s.heldWidth+4)/2, s.top-9)
	}
	if s.outLines > 0 {
		p.put(`<text class="soft mid" x="%d" y="%d">out</text>`,
			s.outX()+s.outLines*(s.heldWidth+4)/2, s.bandOf(s.last()).top-9)
	}
	for _, b := range s.bands {
		end := s.left
		if s.trace.Rounds > 0 {
			end = s.columnX(b.last) + s.columnWidth
		}
		for i, r := range s.ranks {
			s.rankRow(p, r, b.middle[i], end)
		}
	}
}

// rankRow draws the line and the name of a rank in one band.
func (s *sheet) rankRow(p *page, rank, y, end int) {
	p.put(`<path class="line" d="M%d %dH%d"/>`, s.left-10, y, end+10)
	if s.trace.Plan.Spec.Coll.Rooted() && rank == s.trace.Plan.Spec.Root {
		p.put(`<text x="%d" y="%d" font-weight="600">rank %d</text>`, margin, y-2, rank)
		p.put(`<text class="soft" x="%d" y="%d">root</text>`, margin, y+13)
		return
	}
	p.put(`<text x="%d" y="%d">rank %d</text>`, margin, y+4, rank)
}

func (s *sheet) roundName(round int) string {
	if round == 1 && s.columnWidth > 70 {
		return "round 1"
	}
	return fmt.Sprint(round)
}

// stackY returns the middle of chip i of n on a row, in the band of a round.
func (s *sheet) stackY(round, row, i, n int) int {
	return s.bandOf(round).middle[row] + (2*i-n+1)*chipPitch/2
}

func (s *sheet) arrow(p *page, a arrow) {
	tail, head := s.cells[a.from][a.round], s.cells[a.to][a.round]
	x1 := s.columnX(a.round) + port + s.chipWidth
	x2 := s.columnX(a.round) + s.columnWidth - port - s.chipWidth - 1
	if tail.leaving[a.tail].hollow {
		x1 -= s.chipWidth/2 - 4
	}
	if head.arriving[a.head].hollow {
		x2 += s.chipWidth/2 - 4
	}
	y1, y2 := s.stackY(a.round, a.from, a.tail, len(tail.leaving)), s.stackY(a.round, a.to, a.head, len(head.arriving))
	colour := "n"
	if a.style == "never" {
		colour = "never"
	} else if a.colour >= 0 {
		colour = fmt.Sprintf("k%d", a.colour)
	}
	arrowPath(p, x1, y1, x2, y2, colour, a.style)
}

// arrowPath draws a line with a head; integers keep the text the same on all machines.
func arrowPath(p *page, x1, y1, x2, y2 int, colour, style string) {
	dx, dy := x2-x1, y2-y1
	length := max(root(dx*dx+dy*dy), 1)
	bx, by := x2-9*dx/length, y2-9*dy/length // where the head begins
	px, py := 4*dy/length, -4*dx/length
	class, head, close := "a "+colour, "h", "z"
	switch style { // a get has an open head; a signal has two strokes for a head
	case "put":
		class += " put"
	case "get":
		class, head = class+" get", "o"
	case "signal":
		class, head, close = class+" signal", "v", ""
	case "never":
		head, close = "v", ""
	}
	p.put(`<path class="%s" d="M%d %dL%d %d"/><path class="%s %s" d="M%d %dL%d %dL%d %d%s"/>`, class, x1, y1, bx, by,
		head, colour, bx+px, by+py, x2, y2, bx-px, by-py, close)
}

// root returns the integer square root of n.
func root(n int) int {
	r := 0
	for b := 1 << 20; b > 0; b >>= 1 {
		if (r+b)*(r+b) <= n {
			r += b
		}
	}
	return r
}

func (s *sheet) chips(p *page) {
	p.put(`<g class="chip">`)
	for i := range s.ranks {
		s.buffer(p, s.in[i], s.left-buffersGap-s.inLines*(s.heldWidth+4), 1, i, s.inLines)
		for round := 1; round <= s.trace.Rounds; round++ {
			c := s.cells[i][round]
			for k, chip := range c.leaving {
				s.chipAt(p, chip, s.columnX(round)+port, s.chipWidth, s.stackY(round, i, k, len(c.leaving)))
			}
			for k, chip := range c.arriving {
				s.chipAt(p, chip, s.columnX(round)+s.columnWidth-port-s.chipWidth,
					s.chipWidth, s.stackY(round, i, k, len(c.arriving)))
			}
		}
		s.buffer(p, s.out[i], s.outX(), s.last(), i, s.outLines)
	}
	p.put("</g>")
}

// buffer draws the contents of In or Out, in the band of a round.
func (s *sheet) buffer(p *page, chips []chip, x, round, row, wide int) {
	if len(chips) == 0 {
		return
	}
	lines := (len(chips) + wide - 1) / wide
	for i, c := range chips {
		s.chipAt(p, c, x+i%wide*(s.heldWidth+4)+2, s.heldWidth, s.stackY(round, row, i/wide, lines))
	}
}

// chipAt draws a chip with its left edge at x and its middle at y.
func (s *sheet) chipAt(p *page, c chip, x, w, y int) {
	if c.hollow {
		p.put(`<circle class="%s" cx="%d" cy="%d" r="3"/>`, c.dot(), x+w/2, y)
		return
	}
	top := y - chipHeight/2
	if c.blamed {
		p.put(`<rect class="blame" x="%d" y="%d" width="%d" height="%d" rx="5"/>`, x-2, top-2, w+4, chipHeight+4)
	}
	if c.never || c.label == unknown {
		class := "unknown"
		if c.never {
			class = "never"
		}
		p.put(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`, class, x, top, w, chipHeight)
		p.put(`<text class="%s" x="%d" y="%d">%s</text>`, class, x+w/2, y+4, escaped(c.label))
		return
	}
	if c.told != "" {
		p.put(`<g><title>%s</title>`, c.told)
	}
	stripes(p, c.colours, x, top, w)
	if c.complete {
		p.put(`<rect class="edge" x="%d" y="%d" width="%d" height="%d" rx="4"/>`, x, top, w, chipHeight)
	}
	if c.label != "" {
		p.put(`<text x="%d" y="%d">%s</text>`, x+w/2, y+4, escaped(c.label))
	}
	if c.reduced {
		plusAt(p, x+w+2, top)
	}
	if c.told != "" {
		p.put("</g>")
	}
}

// dot returns the class of a chip that is a dot.
func (c chip) dot() string {
	switch {
	case c.never:
		return "never"
	case c.blamed:
		return "blame"
	}
	return "n"
}

// stripes draws the box of a chip in all of its colours; it has round corners if they fit into the
// outer stripes.
func stripes(p *page, colours []int, x, top, w int) {
	n := len(colours)
	if n == 1 {
		p.put(`<rect class="c k%d" x="%d" y="%d" width="%d" height="%d" rx="4"/>`, colours[0], x, top, w, chipHeight)
		return
	}
	for i, k := range colours {
		from, to := x+i*w/n, x+(i+1)*w/n
		switch {
		case i == 0 && to-from >= 4:
			p.put(`<path class="c k%d" d="M%d %dh-%da4 4 0 0 1 -4 -4v-%da4 4 0 0 1 4 -4h%dz"/>`,
				k, to, top+chipHeight, to-from-4, chipHeight-8, to-from-4)
		case i == n-1 && to-from >= 4:
			p.put(`<path class="c k%d" d="M%d %dh%da4 4 0 0 1 4 4v%da4 4 0 0 1 -4 4h-%dz"/>`,
				k, from, top, to-from-4, chipHeight-8, to-from-4)
		default:
			p.put(`<rect class="c k%d" x="%d" y="%d" width="%d" height="%d"/>`, k, from, top, to-from, chipHeight)
		}
	}
}

func plusAt(p *page, x, y int) {
	p.put(`<circle class="ink ring" cx="%d" cy="%d" r="6"/><path class="plus" d="M%d %dh6m-3 -3v6"/>`, x, y, x-3, y)
}

// legend explains colours and marks; it also sets the height of the picture.
func (s *sheet) legend(p *page) {
	x, y := margin, s.bands[len(s.bands)-1].bottom+24
	next := func(width int) {
		if x += width; x > s.width-60 {
			x, y = margin, y+26
		}
	}
	room := func(words string) { // for a mark of 42 pixels and its words
		if x > margin && x+42+7*len([]rune(words)) > s.width-margin {
			x, y = margin, y+26
		}
	}
	text := func(words string) {
		p.put(`<text x="%d" y="%d">%s</text>`, x, y+4, words)
		x += 13*len([]rune(words))/2 + 18
	}
	if s.anyColour() {
		p.put(`<text class="soft" x="%d" y="%d">%s</text>`, x, y+4, s.names.by)
		next(7*len(s.names.by) + 10)
		groups := min(s.names.keys, len(light))
		for i := range groups {
			first, last := s.firstKey(i, groups), s.firstKey(i+1, groups)-1
			label := fmt.Sprint(first)
			if last > first {
				label = fmt.Sprintf("%d–%d", first, last)
			}
			w := 12 + 7*len([]rune(label))
			p.put(`<rect class="c k%d" x="%d" y="%d" width="%d" height="%d" rx="4"/><text class="chip" x="%d" y="%d">%s</text>`,
				i, x, y-chipHeight/2, w, chipHeight, x+w/2, y+4, label)
			next(w + 5)
		}
		x, y = margin, y+30
	}
	for _, a := range []struct{ style, words string }{
		{"message", "message"}, {"empty", "empty message"},
		{"put", "put: written into the peer's window"},
		{"get", "get: read from the peer's window"}, {"signal", "signal"},
		{"never", "never happens"}} {
		if s.used[a.style] {
			room(a.words)
			colour := "n"
			if a.style == "never" {
				colour = a.style
			}
			arrowPath(p, x, y, x+34, y, colour, a.style)
			x += 42
			text(a.words)
		}
	}
	if s.used["reduced"] {
		const words = "reduced at this rank"
		room(words)
		plusAt(p, x+6, y)
		x += 18
		text(words)
	}
	if s.used["complete"] {
		const words = "contributions of all ranks"
		room(words)
		p.put(`<rect class="edge" x="%d" y="%d" width="20" height="%d" rx="4"/>`, x+1, y-chipHeight/2, chipHeight)
		x += 28
		text(words)
	}
	if s.used["blamed"] {
		const words = "by a step to blame"
		room(words)
		p.put(`<rect class="blame" x="%d" y="%d" width="20" height="%d" rx="5"/>`, x+1, y-chipHeight/2, chipHeight)
		x += 28
		text(words)
	}
	if s.used["unknown"] {
		const words = "nobody wrote it"
		room(words)
		p.put(`<rect class="unknown" x="%d" y="%d" width="20" height="%d" rx="4"/>`, x+1, y-chipHeight/2, chipHeight)
		p.put(`<g class="chip"><text class="unknown" x="%d" y="%d">%s</text></g>`, x+11, y+4, unknown)
		x += 28
		text(words)
	}
	s.height = y + 26
}

func (s *sheet) anyColour() bool {
	return slices.ContainsFunc(s.in, func(c []chip) bool { return len(c) > 0 })
}

// firstKey returns the first key of a colour group.
func (s *sheet) firstKey(group, groups int) int {
	return (group*s.names.keys + groups - 1) / groups
}
