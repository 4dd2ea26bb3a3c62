package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// Verdict describes what is wrong with a plan, as found by package verify, for a drawing that shows
// it.
type Verdict struct {
	Text   string
	Blamed []Place // the steps at fault
	Stuck  []Place // for each lane that does not end, the step at which it waits forever
}

// Place is a step of a rank. Step numbers count loops unrolled.
type Place struct{ Rank, Lane, Step int }

// followWrong follows a wrong plan as far as it gets; Out and Sent of the trace describe this part.
// Then it follows the rest as if no lane waited forever: these moves never happen.
func (f *follower) followWrong() error {
	for _, at := range f.wrong.Stuck {
		f.ranks[at.Rank].lanes[at.Lane].stuck = true
		f.ranks[at.Rank].lanes[at.Lane].until = at.Step
	}
	if err := f.run(); err != nil {
		return err
	}
	f.keepOut()
	sent := slices.Clone(f.trace.Sent)
	for r := range f.ranks {
		for l := range f.ranks[r].lanes {
			lane := &f.ranks[r].lanes[l]
			f.trace.Steps += len(lane.steps)
			f.trace.Never += len(lane.steps) - lane.pc
			lane.stuck = false
		}
	}
	f.never = true
	err := f.run()
	f.oneSided()
	f.trace.Sent = sent
	return err
}

// oneSided records the messages that have only one side: messages without a recv, and messages
// without a send.
func (f *follower) oneSided() {
	for _, from := range slices.SortedFunc(maps.Keys(f.messages), compareRoutes) {
		for _, m := range f.messages[from] {
			f.record(Move{Round: m.round, From: from.from, To: from.to, Kind: plan.Send, Carried: m.values})
		}
	}
	for r := range f.ranks {
		for _, lane := range f.ranks[r].lanes {
			if lane.pc == len(lane.steps) {
				continue
			}
			if s := &lane.steps[lane.pc]; s.Kind.Traits().Awaits() {
				f.record(Move{Round: lane.round + 1, From: s.Peer, To: r, Kind: plan.Send})
			}
		}
	}
}

func compareRoutes(a, b route) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.index, b.index))
}

func (v *Verdict) blames(p Place) bool { return slices.Contains(v.Blamed, p) }

// Additional styles of the drawings of wrong plans, on light and on dark paper.
const (
	wrongStyle = `.bad{fill:#fde8e8;stroke:#cf222e}.worse,text.worse{font-weight:600;fill:#a40e26}
path.never,rect.never,circle.never{fill:none;stroke:#cf222e;stroke-width:1.4;stroke-dasharray:3 3}
.chip text.never{fill:#cf222e}
.blame{fill:none;stroke:#cf222e;stroke-width:2.5}rect.unknown{fill:none;stroke:#59636e}.chip text.unknown{fill:#59636e}
`
	darkWrongStyle = `.bad{fill:#3b1219}.worse,text.worse{fill:#ffa198}.chip text.never{fill:#ff7b72}
path.never,rect.never,circle.never,.blame{stroke:#ff7b72}rect.unknown{stroke:#9aa5b1}.chip text.unknown{fill:#9aa5b1}
`
)

// Dimensions of the banner.
const (
	bannerTop  = 60
	bannerLine = 17
	bannerEdge = 10
)

// banner breaks the verdict into lines, for a picture of the given width.
func banner(v *Verdict, width int) []string {
	if v == nil {
		return nil
	}
	most := (width - 2*margin - 2*bannerEdge) / 7
	var lines []string
	line := ""
	for _, word := range strings.Fields(v.Text) {
		if len([]rune(line))+1+len([]rune(word)) > most {
			lines = append(lines, line)
			line = word
			continue
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// verdict draws the banner.
func (s *sheet) verdict(p *page) {
	if len(s.banner) == 0 {
		return
	}
	p.put(`<rect class="bad" x="%d" y="%d" width="%d" height="%d" rx="4"/>`, margin, bannerTop, s.width-2*margin,
		len(s.banner)*bannerLine+bannerEdge)
	for i, line := range s.banner {
		p.put(`<text class="worse" x="%d" y="%d">%s</text>`,
			margin+bannerEdge, bannerTop+bannerLine*(i+1), escaped(line))
	}
}

// progress describes how far a wrong plan gets; "" if all its steps happen.
func (t *Trace) progress() string {
	if t.Never == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s never happen", t.Never, count(t.Steps, "step"))
}
