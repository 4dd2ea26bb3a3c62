package draw

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo/network"
)

// Sizes of the boxes of a network, in pixels.
const (
	boxGap    = 8
	boxHead   = 24  // the label of a box that has others in it
	boxLine   = 16  // a line of a box that has none
	boxWide   = 900 // boxes go on in a next row beyond that
	mostDrawn = 64  // links beside the boxes
)

// partStyle has the colours of boxes.
const (
	partStyle = `.box{stroke:#8a94a0;stroke-width:1;fill:#f3f5f8}.core{fill:#dbeafe}.cache{fill:#eef2ff}.memory{fill:#ecfdf3}
.gpu{fill:#d6f5dd}.adapter,.interface{fill:#fff1d6}.bridge{fill:#f7f7f9}.network{fill:#fde8e8}.rank{stroke:#1f2328;stroke-width:1.6}
.small{font-size:11px}.link{fill:none;stroke:#b45309;stroke-width:1.4;opacity:.7}
`
	darkPartStyle = `.box{stroke:#5c6773;fill:#161c25}.core{fill:#12304f}.cache{fill:#1c2333}.memory{fill:#12291d}
.gpu{fill:#143a20}.adapter,.interface{fill:#3d2f10}.bridge{fill:#14181f}.network{fill:#3f1d1d}.rank{stroke:#e6edf3}.link{stroke:#f0a85a}
`
)

// Topology draws a network as a self-contained text: boxes in boxes, as what is in them is reached,
// and lines for links beside that. Boxes with thick edges are ranks.
func Topology(t *network.Topology) (string, error) {
	if err := t.Validate(); err != nil {
		return "", err
	}
	if len(t.Nodes) > MaxCells {
		return "", fault.New(fault.NotSupported, "%s: %d nodes are too many to draw, at most %d", t.Name, len(t.Nodes), MaxCells)
	}
	roots, beside := t.Tree()
	s := &boxes{t: t, at: make([]*box, len(t.Nodes))}
	top := &box{}
	for i := range roots {
		top.below = append(top.below, s.measure(&roots[i]))
	}
	top.flow(0, 0)
	const head = 62
	width, height := max(top.w, 420)+2*margin, head+top.h+margin
	top.move(margin-boxGap, head-boxGap)

	var body page
	for _, b := range top.below {
		s.draw(&body, b)
	}
	notes := s.links(&body, beside)
	for i, note := range notes {
		body.put(`<text class="soft small" x="%d" y="%d">%s</text>`, margin, height+i*boxLine, escaped(note))
	}
	height += len(notes) * boxLine

	title := t.Name
	facts := fmt.Sprintf("%s, %s", count(t.Ranks(), "rank"), count(len(t.Nodes)-t.Ranks(), "other node"))
	var page page
	page.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title desc">`,
		width, height, width, height)
	page.put(`<title id="title">%s</title>`, escaped(title))
	page.put(`<desc id="desc">%s. Boxes are nodes, in those through which they are reached; thick edges are ranks.</desc>`, facts)
	page.put("<style>%s%s@media (prefers-color-scheme:dark){%s%s}</style>", style, partStyle, darkStyle, darkPartStyle)
	page.put(`<rect class="bg" width="%d" height="%d"/>`, width, height)
	page.put(`<text class="title" x="%d" y="28">%s</text>`, margin, escaped(title))
	page.put(`<text class="soft" x="%d" y="48">%s</text>`, margin, facts)
	page.WriteString(body.String())
	page.put("</svg>")
	return page.String(), nil
}

// boxes is a network that is being drawn.
type boxes struct {
	t  *network.Topology
	at []*box // by node
}

// box is a node, with what is in it.
type box struct {
	node        int
	label, note string
	x, y, w, h  int
	below       []*box
}

// measure makes the boxes of a branch, and finds out how large they are.
func (s *boxes) measure(branch *network.Branch) *box {
	n := &s.t.Nodes[branch.Node]
	b := &box{node: branch.Node, label: n.Label()}
	s.at[branch.Node] = b
	if branch.Link >= 0 {
		b.note = s.t.Classes[s.t.Links[branch.Link].Class].Rates()
	}
	for i := range branch.Below {
		b.below = append(b.below, s.measure(&branch.Below[i]))
	}
	label, note := 16+8*len([]rune(b.label)), 16+7*len([]rune(b.note))
	if b.below == nil {
		b.w, b.h = max(label, note), boxLine+10
		if b.note != "" {
			b.h += boxLine
		}
		return b
	}
	b.flow(label+note, boxHead)
	return b
}

// flow places the boxes that are in one, in rows, from its upper left corner on.
func (b *box) flow(least, head int) {
	x, y, row := boxGap, head+boxGap, 0
	for _, each := range b.below {
		if x > boxGap && x+each.w > boxWide {
			x, y, row = boxGap, y+row+boxGap, 0
		}
		each.move(x, y)
		x += each.w + boxGap
		row = max(row, each.h)
		b.w = max(b.w, x)
	}
	b.w, b.h = max(b.w, least), y+row+boxGap
}

// move moves a box and what is in it.
func (b *box) move(x, y int) {
	b.x, b.y = b.x+x, b.y+y
	for _, each := range b.below {
		each.move(x, y)
	}
}

func (s *boxes) draw(p *page, b *box) {
	n := &s.t.Nodes[b.node]
	classes := strings.TrimSpace("box " + string(n.Part))
	if n.Rank {
		classes += " rank"
	}
	p.put(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`, classes, b.x, b.y, b.w, b.h)
	p.put(`<text x="%d" y="%d">%s</text>`, b.x+8, b.y+17, escaped(b.label))
	switch {
	case b.note == "":
	case b.below == nil:
		p.put(`<text class="soft small" x="%d" y="%d">%s</text>`, b.x+8, b.y+17+boxLine, escaped(b.note))
	default:
		p.put(`<text class="soft small" x="%d" y="%d">%s</text>`, b.x+16+8*len([]rune(b.label)), b.y+17, escaped(b.note))
	}
	for _, each := range b.below {
		s.draw(p, each)
	}
}

// links draws the links beside the boxes, and returns what is said of them below.
func (s *boxes) links(p *page, beside []int) (notes []string) {
	number := make([]int, len(s.t.Classes))
	for _, i := range beside {
		l := s.t.Links[i]
		number[l.Class]++
		if from, to := s.at[l.From], s.at[l.To]; len(beside) <= mostDrawn {
			x, y := (from.middle()+to.middle())/2, max(from.y, to.y)+12
			p.put(`<path class="link" d="M%d %dQ%d %d %d %d"/>`, from.middle(), from.y+5, x, y, to.middle(), to.y+5)
		}
	}
	for class, n := range number {
		if n > 0 {
			c := &s.t.Classes[class]
			text := fmt.Sprintf("%s of class %s, beside the boxes: %s", count(n, "link"), c.Name, c.Rates())
			notes = append(notes, text)
		}
	}
	return notes
}

func (b *box) middle() int { return b.x + b.w/2 }
