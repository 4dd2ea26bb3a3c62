package verify

import "math/bits"

// pairTable maps pairs of numbers to positive numbers: a hash table with linear probing. It
// accounts for a large part of the cost of verifying, and a Go map takes twice as long.
type pairTable struct {
	entries []pair // the length is a power of two, at most half of them used; v is 0 if unused
	count   int
}

type pair struct{ a, b, v int32 }

const fewPairs = 64 // initial number of entries

// at returns the index of the entry of a pair, or of the unused entry where it would be. The table
// must have entries.
func (p *pairTable) at(a, b int32) int {
	hash := (uint64(uint32(a))<<32 | uint64(uint32(b))) * 0x9e3779b97f4a7c15 // 2⁶⁴ over the golden ratio
	mask := len(p.entries) - 1
	for i := int(hash >> (65 - bits.Len(uint(len(p.entries))))); ; i = (i + 1) & mask {
		if e := &p.entries[i]; e.v == 0 || e.a == a && e.b == b {
			return i
		}
	}
}

// get returns the number that a pair is mapped to, or 0 if it is not mapped.
func (p *pairTable) get(a, b int32) int32 {
	if p.count == 0 {
		return 0
	}
	return p.entries[p.at(a, b)].v
}

// put maps a pair that is not yet mapped to v > 0.
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
