package member

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/goccl/goccl/ccl/fault"
)

// Gathering is one rank's part in finding out who comes to a group that grows. Newcomers come to
// any of its ranks, with offers: what the others need to join them. Rank 0 collects the offers, and
// tells all the list. If a rank dies meanwhile, there is none, or not all have it; so they go on
// only if all ranks take part in what follows (package agree).
//
// Like Meeting it is pure. Its user brings the notes of one rank in order.
type Gathering struct {
	self, ranks, most int

	here    []bool // by rank: it gathers
	came    []came // rank 0: the offers, as they came
	late    bool
	decided bool
	list    [][]byte
	wrong   *fault.Error
}

// Note is what ranks that gather tell each other.
type Note struct {
	Kind  noteKind
	Most  int      `json:",omitempty"` // here: how many newcomers the rank takes
	Offer []byte   `json:",omitempty"` // came, left
	List  [][]byte `json:",omitempty"` // list
}

type noteKind string

const (
	noteHere noteKind = "here" // a rank gathers
	noteCame noteKind = "came" // a newcomer has come there
	noteLeft noteKind = "left" // it has gone again
	noteList noteKind = "list" // these are taken
)

// came is an offer, and the rank that the newcomer has come to.
type came struct {
	at    int
	offer []byte
}

// Told is a Note for a rank, or for All others.
type Told struct {
	To   int
	Note Note
}

// All is every other rank.
const All = -1

// NewGathering returns the part of a rank. At most most newcomers are taken: the same on all ranks.
func NewGathering(self, ranks, most int) *Gathering {
	g := &Gathering{self: self, ranks: ranks, most: most, here: make([]bool, ranks)}
	g.here[self] = true
	return g
}

// ParseNote reads a note, which is not trusted.
func ParseNote(text []byte) (n Note, err error) {
	if json.Unmarshal(text, &n) != nil {
		return n, fault.New(fault.Internal, "a note about newcomers that cannot be read")
	}
	return n, nil
}

// Encode returns the note as a text.
func (n Note) Encode() []byte { return encode(n) }

// Begin returns what is to be told, as the other methods do.
func (g *Gathering) Begin() []Told {
	return append([]Told{{All, Note{Kind: noteHere, Most: g.most}}}, g.settle()...)
}

// Came takes the offer of a newcomer that has come to this rank.
func (g *Gathering) Came(offer []byte) []Told {
	if g.self != 0 {
		return []Told{{0, Note{Kind: noteCame, Offer: offer}}}
	}
	return g.Hear(0, Note{Kind: noteCame, Offer: offer})
}

// Left takes back such an offer: the newcomer has gone.
func (g *Gathering) Left(offer []byte) []Told {
	if g.self != 0 {
		return []Told{{0, Note{Kind: noteLeft, Offer: offer}}}
	}
	return g.Hear(0, Note{Kind: noteLeft, Offer: offer})
}

// Late says that no more newcomers are waited for, once all ranks are there.
func (g *Gathering) Late() []Told {
	g.late = true
	return g.settle()
}

// Hear takes the note of a rank.
func (g *Gathering) Hear(from int, n Note) []Told {
	same := func(c came) bool { return bytes.Equal(c.offer, n.Offer) }
	switch {
	case g.decided:
	case n.Kind == noteHere:
		g.here[from] = true
		if n.Most != g.most {
			g.wrong = fault.Peer(fault.Mismatch, from, "newcomers: rank %d takes %d, rank %d takes %d; all ranks need "+
				"the same", g.self, g.most, from, n.Most)
		}
	case n.Kind == noteList && from == 0:
		g.list, g.decided = n.List, true
	case g.self != 0:
	case n.Kind == noteCame: // perhaps once more, to another rank
		g.came = append(slices.DeleteFunc(g.came, same), came{from, n.Offer})
	case n.Kind == noteLeft:
		g.came = slices.DeleteFunc(g.came, func(c came) bool { return same(c) && c.at == from })
	}
	return g.settle()
}

// settle decides, at rank 0, once all ranks are there and enough newcomers, or the time is up.
func (g *Gathering) settle() []Told {
	if g.self != 0 || g.decided || g.wrong != nil || !g.Complete() || len(g.came) < g.most && !g.late {
		return nil
	}
	for _, c := range g.came[:min(len(g.came), g.most)] {
		g.list = append(g.list, c.offer)
	}
	g.decided = true
	return []Told{{All, Note{Kind: noteList, List: g.list}}}
}

// Complete reports whether all ranks gather: from then on newcomers are waited for.
func (g *Gathering) Complete() bool { return !slices.Contains(g.here, false) }

// Outcome returns the offers of those that are taken, the same on all ranks, once that is decided,
// or why there is no list.
func (g *Gathering) Outcome() (list [][]byte, decided bool, err error) {
	if g.wrong != nil {
		return nil, false, g.wrong
	}
	return g.list, g.decided, nil
}

// Awaited returns the ranks that this one waits for.
func (g *Gathering) Awaited() (ranks []int) {
	for rank, here := range g.here {
		if !here && !g.decided {
			ranks = append(ranks, rank)
		}
	}
	if len(ranks) == 0 && !g.decided && g.self != 0 {
		return []int{0}
	}
	return ranks
}
