package dtype

import "fmt"

// Collective is a communication primitive of a whole group. Send and Recv share its numbering
// because errors, traces and the C ABI name them in the same field; they have no plans (see package
// exec/p2p).
type Collective uint8

const (
	NoCollective Collective = iota
	Broadcast
	Scatter
	Gather
	AllGather
	Reduce
	ReduceScatter
	AllReduce
	AllToAll
	Barrier
	Send
	Recv
	numCollectives
)

var collectives = [numCollectives]struct {
	name      string
	in, out   blocks
	rooted    bool
	reduction bool
}{
	NoCollective:  {name: "none"},
	Broadcast:     {"broadcast", atRoot, one, true, false},
	Scatter:       {"scatter", atRoot | perRank, one, true, false},
	Gather:        {"gather", one, atRoot | perRank, true, false},
	AllGather:     {"all_gather", one, perRank, false, false},
	Reduce:        {"reduce", one, atRoot, true, true},
	ReduceScatter: {"reduce_scatter", perRank, one, false, true},
	AllReduce:     {"all_reduce", one, one, false, true},
	AllToAll:      {"all_to_all", perRank, perRank, false, false},
	Barrier:       {"barrier", none, none, false, false},
	Send:          {"send", one, none, false, false},
	Recv:          {"recv", none, one, false, false},
}

// blocks describes the blocks of one rank's In or Out buffer in a collective.
type blocks uint8

const (
	none    blocks = 0
	one     blocks = 1       // one block
	perRank blocks = 2       // one block for each rank
	atRoot  blocks = 4 | one // at the root only; with perRank: one for each rank
)

func (b blocks) count(ranks, rank, root int) int {
	if b&4 != 0 && rank != root {
		return 0
	}
	if b&perRank != 0 {
		return ranks
	}
	return int(b & one)
}

// Collectives returns the collectives that have plans, in the order of the constants.
func Collectives() []Collective {
	var all []Collective
	for c := Broadcast; c <= Barrier; c++ {
		all = append(all, c)
	}
	return all
}

// Valid reports whether c is a collective that has plans.
func (c Collective) Valid() bool { return c >= Broadcast && c <= Barrier }

func (c Collective) String() string {
	if c >= numCollectives {
		return fmt.Sprintf("collective(%d)", uint8(c))
	}
	return collectives[c].name
}

// ParseCollective finds a collective by its name, with or without underscores ("all_reduce",
// "allreduce").
func ParseCollective(name string) (Collective, error) {
	plain := squeeze(name)
	for c := Broadcast; c < numCollectives; c++ {
		if squeeze(collectives[c].name) == plain {
			return c, nil
		}
	}
	return NoCollective, fmt.Errorf("unknown collective %q; known: %v", name, Collectives())
}

func squeeze(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] != '_' && s[i] != '-' {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// Rooted reports whether c has a root.
func (c Collective) Rooted() bool { return c < numCollectives && collectives[c].rooted }

// Reduces reports whether c combines elements with an operator.
func (c Collective) Reduces() bool { return c < numCollectives && collectives[c].reduction }

// LengthsKnown reports whether each rank knows the lengths of all blocks of a call from its own.
func (c Collective) LengthsKnown() bool { return c != AllToAll && c != Gather && c != Scatter }

// InBlocks returns the number of blocks in the In buffer of a rank: 0, 1 or one for each rank.
func (c Collective) InBlocks(ranks, rank, root int) int {
	return collectives[c].in.count(ranks, rank, root)
}

// OutBlocks returns the number of blocks in the Out buffer of a rank: 0, 1 or one for each rank.
func (c Collective) OutBlocks(ranks, rank, root int) int {
	return collectives[c].out.count(ranks, rank, root)
}

// PerRank reports whether a rank, or the root, has a block for each rank on one side at least.
func (c Collective) PerRank() bool {
	return c < numCollectives && (collectives[c].in|collectives[c].out)&perRank != 0
}

// BusFactor returns nccl-tests' ratio of bus bandwidth to algorithm bandwidth: the bytes that the
// busiest link carries for each byte of the vector.
func (c Collective) BusFactor(ranks int) float64 {
	n := float64(ranks)
	switch c {
	case AllReduce:
		return 2 * (n - 1) / n
	case AllGather, ReduceScatter, AllToAll, Gather, Scatter:
		return (n - 1) / n
	}
	return 1
}
