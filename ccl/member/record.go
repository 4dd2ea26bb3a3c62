package member

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
)

// party is one attempt of a process to be a rank of the group.
type party struct {
	Rank    int `json:"rank"`
	Size    int `json:"size"`    // of the group, as it was told
	Attempt int `json:"attempt"` // of all that came as this rank, from 1
	topo.Process
}

func (p *party) String() string { return fmt.Sprintf("rank %d (%v)", p.Rank, p.Process) }

func (p *party) same(other *party) bool { return p.Rank == other.Rank && p.Attempt == other.Attempt }

// offer is what a rank writes when it has come: who it is, and its address.
type offer struct {
	party
	At      int64 `json:"at"` // Unix time, ns
	address []byte
}

// maxHead bounds the JSON of a record but for lists of ranks, which have maxEach bytes for each.
const (
	maxHead = 16 << 10
	maxEach = 48
)

func (o *offer) encode() []byte { return append(append(encode(o), '\n'), o.address...) }

func parseOffer(text []byte) (*offer, error) {
	head, address, ok := bytes.Cut(text, []byte("\n"))
	o := &offer{address: address}
	if !ok || len(head) > maxHead || json.Unmarshal(head, o) != nil {
		return nil, fault.New(fault.Internal, "the record of a rank in the store cannot be read")
	}
	return o, nil
}

func parseParty(text []byte) (*party, error) {
	p := &party{}
	if len(text) > maxHead || json.Unmarshal(text, p) != nil {
		return nil, fault.New(fault.Internal, "the record of the group's size in the store cannot be read")
	}
	return p, nil
}

// verdict ends a round, for all ranks alike. The first one that is written counts.
type verdict struct {
	Kind kind  `json:"kind"`
	By   party `json:"by"`
	At   int64 `json:"at"` // Unix time, ns

	Size     int           `json:"size,omitempty"`     // met: of the group
	Attempts map[int]int   `json:"attempts,omitempty"` // met: by rank; not listed: those that have the round's number
	Other    *party        `json:"other,omitempty"`    // who By cannot be in one group with
	Missing  []int         `json:"missing,omitempty"`  // ascending
	Timeout  time.Duration `json:"timeout,omitempty"`
	Why      string        `json:"why,omitempty"`
}

type kind string

const (
	met    kind = "met"    // all ranks have come
	late   kind = "late"   // Missing have not come within Timeout
	ended  kind = "ended"  // all have come, but the process of Other has ended; with Timeout, long ago
	lost   kind = "lost"   // Missing are known to have died
	sizes  kind = "sizes"  // By and Other were told different sizes
	twice  kind = "twice"  // By and Other are the same rank, and both are there
	failed kind = "failed" // By cannot join
)

// maxWhy bounds the reason of a verdict.
const maxWhy = 1024

func parseVerdict(text []byte, ranks int) (*verdict, error) {
	v := &verdict{}
	if len(text) > maxHead+maxEach*ranks || json.Unmarshal(text, v) != nil ||
		!slices.Contains([]kind{met, late, ended, lost, sizes, twice, failed}, v.Kind) ||
		(v.Kind == sizes || v.Kind == twice || v.Kind == ended) && v.Other == nil {
		return nil, fault.New(fault.Internal, "the verdict on the meeting in the store cannot be read")
	}
	return v, nil
}

// attempt returns which attempt of a rank has met the others.
func (v *verdict) attempt(rank, round int) int {
	if a, ok := v.Attempts[rank]; ok {
		return a
	}
	return round
}

// names reports whether a party is one of those that a verdict is about.
func (v *verdict) names(p *party) bool { return v.By.same(p) || v.Other != nil && v.Other.same(p) }

// err returns what a verdict means for one of the ranks. name and global are those of Config.
func (v *verdict) err(self *party, now time.Time, cfg *Config) error {
	by := v.By.String()
	switch v.Kind {
	case late:
		waited := fmt.Sprintf("%v s", v.Timeout.Seconds())
		if slices.Contains(v.Missing, self.Rank) {
			return fault.Peer(fault.Timeout, v.By.Rank, "%s gave up %.1f s ago, since this rank had not come within %s; "+
				"all ranks can call %s again, and meet there",
				by, max(now.Sub(time.Unix(0, v.At)), 0).Seconds(), waited, cfg.Call)
		}
		note := ""
		if !v.By.same(self) {
			note = fmt.Sprintf(" (%s gave up)", by)
		}
		return fault.New(fault.Timeout, "%s (of %d) did not come to group %s within %s%s: not started, still busy, or "+
			"failed before the call of %s; look at the output there, or raise the timeout",
			cfg.named(v.Missing), cfg.Size, cfg.Name, waited, note, cfg.Call)
	case ended:
		within := ""
		if v.Timeout > 0 {
			within = fmt.Sprintf(", and no other one has come as this rank within %v s", v.Timeout.Seconds())
		}
		return fault.Peer(fault.PeerLost, v.Other.Rank, "%v came, but its process has ended%s", v.Other, within)
	case lost:
		return fault.New(fault.PeerLost, "%s", v.Why)
	case sizes:
		return fault.New(fault.Mismatch, "number of ranks: %s has %d, %v has %d; all ranks of a group need the same "+
			"(world_size)", by, v.By.Size, v.Other, v.Other.Size)
	case twice:
		return fault.New(fault.Mismatch, "two processes have come as rank %d: %v, and %v; is a rank used twice?",
			v.By.Rank, v.By.Process, v.Other.Process)
	}
	return fault.Peer(fault.PeerLeft, v.By.Rank, "%s cannot join: %s", by, v.Why)
}

// mostNamed is how many ranks a message names.
const mostNamed = 32

// named names ranks, with their numbers in the whole job if those differ.
func (c *Config) named(ranks []int) string {
	what := "ranks "
	if len(ranks) == 1 {
		what = "rank "
	}
	names := make([]string, 0, mostNamed)
	for _, rank := range ranks[:min(len(ranks), mostNamed)] {
		names = append(names, c.numbered(rank))
	}
	more := ""
	if len(ranks) > mostNamed {
		more = fmt.Sprintf(" and %d more", len(ranks)-mostNamed)
	}
	return what + strings.Join(names, ", ") + more
}

func (c *Config) numbered(rank int) string {
	if rank < len(c.OfJob) && c.OfJob[rank] != uint64(rank) {
		return fmt.Sprintf("%d (global rank %d)", rank, c.OfJob[rank])
	}
	return strconv.Itoa(rank)
}

// encode returns the JSON of a record of numbers and texts: it cannot fail.
func encode(record any) []byte {
	text, _ := json.Marshal(record)
	return text
}
