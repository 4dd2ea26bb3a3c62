package verify

import "math/bits"

// pairTable maps pairs of numbers to positive numbers: a hash table with linear probing. It is a
// large part of what verifying costs, and a map takes twice as long.
type pairTable struct {
	entries []pair // a power of two, at most half of them used; v is 0 where unused
	count   int
}

type pair struct{ a, b, v int32 }

const fewPairs = 64 // to begin with

// at is the index of the entry of a pair, or of the unused one where it would be. There are
// entries.
func (p *pairTable) at(a, b int32) int {
	hash := (uint64(uint32(a))<<32 | uint64(uint32(b))) * 0x9e3779b97f4a7c15 // 2⁶⁴ over the golden ratio
	mask := len(p.entries) - 1
	for i := int(hash >> (65 - bits.Len(uint(len(p.entries))))); ; i = (i + 1) & mask {
		if e := &p.entries[i]; e.v == 0 || e.a == a && e.b == b {
			return i
		}
	}
}

// get is what a pair is mapped to, 0 if to nothing.
func (p *pairTable) get(a, b int32) int32 {
	if p.count == 0 {
		return 0
	}
	return p.entries[p.at(a, b)].v
}

// put maps a pair that is mapped to nothing to v > 0.
func (p *pairTable) put(a, b, v int32) {
	if p.count*2 >= len(p.entries) {
		old := p.entries
		p.entries = make([]pair, max(2*len(old), fewPairs))
		for _, e := range old {
			if e.v != 0 {
				p.entries[p.at(e.a, e.b)] = e
			}
		}
	}
	p.entries[p.at(a, b)] = pair{a, b, v}
	p.count++
}
