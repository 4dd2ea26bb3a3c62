package member

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Two states are the same for the model if they differ only in what no rank looks at any more, or
// in which rank is which: no rule of a meeting depends on the order of the ranks, but for the order
// in which one asks for others, and there the model takes every order (next).

type stateKey [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// key returns what tells states apart.
func (w *world) key() (k stateKey) {
	code := w.encode()
	for i, seed := range seeds {
		k[i] = maphash.Bytes(seed, code)
	}
	return k
}

// encode returns the least code of the state over all names of the ranks.
func (w *world) encode() []byte {
	own := make([][]byte, len(w.ranks))
	order := make([]int, len(w.ranks))
	for rank := range w.ranks {
		own[rank], order[rank] = w.encodeRank(rank), rank
	}
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(own[a], own[b]) })
	var least []byte
	permute(order, 0, func(a, b int) bool { return slices.Equal(own[a], own[b]) }, func() {
		if code := w.encodeAs(order, own); least == nil || slices.Compare(code, least) < 0 {
			least = code
		}
	})
	return least
}

// permute calls each with every order of the ranks that are alike.
func permute(order []int, from int, alike func(a, b int) bool, each func()) {
	if from == len(order) {
		each()
		return
	}
	for i := from; i < len(order) && alike(order[from], order[i]); i++ {
		order[from], order[i] = order[i], order[from]
		permute(order, from+1, alike, each)
		order[from], order[i] = order[i], order[from]
	}
}

// generation tells the processes of a rank apart.
func generation(pid int) byte { return byte(pid / 100) }

// encodeRank returns what concerns one rank, without the names of others.
func (w *world) encodeRank(rank int) []byte {
	p := w.ranks[rank]
	m := p.m
	code := []byte{generation(p.pid), byte(p.attempt), flags(p.wrote, m.open, m.over, m.late(), m.verdict != nil),
		byte(p.request.Op), byte(p.request.Number), byte(m.round), byte(m.self.Attempt), byte(len(m.asked)),
		byte(len(m.there)), byte(len(m.away))}
	code = binary.LittleEndian.AppendUint64(code, uint64(reflect.ValueOf(m.then).Pointer()))
	var records [][]byte
	for key, value := range w.board {
		if k := parseKey(key); k.ranked && k.rank == rank {
			head := []byte{k.kind, byte(k.round), byte(k.attempt)}
			records = append(records, append(head, w.record(k.kind, value)...))
		}
	}
	slices.SortFunc(records, slices.Compare)
	return slices.Concat(code, slices.Concat(records...))
}

// record returns what counts of a value of one rank.
func (w *world) record(kind byte, value string) []byte {
	if kind != 'o' {
		return []byte(value)
	}
	o := parsed(value, func(text string) *offer {
		o, err := parseOffer([]byte(text))
		if err != nil {
			panic(err)
		}
		return o
	})
	attempt, _, _ := strings.Cut(string(o.address), " ")
	code := append([]byte{generation(o.Pid)}, attempt...)
	if w.deaths > 0 { // later, all that have died did so at the same time
		code = binary.LittleEndian.AppendUint64(code, uint64(o.At))
	}
	return code
}

// encodeAs returns the code of the state with other names of the ranks: in their order.
func (w *world) encodeAs(order []int, own [][]byte) []byte {
	names := make([]byte, len(order))
	var code []byte
	for name, rank := range order {
		names[rank] = byte(name)
	}
	set := func(ranks []int) {
		var bits byte
		for _, rank := range ranks {
			bits |= 1 << names[rank]
		}
		code = append(code, bits)
	}
	judgement := func(text string) {
		v := parsed(text, func(text string) *verdict {
			v := &verdict{}
			if err := json.Unmarshal([]byte(text), v); err != nil {
				panic(err)
			}
			return v
		})
		code = append(code, v.Kind...)
		code = append(code, names[v.By.Rank], byte(v.By.Attempt), generation(v.By.Pid))
		code = binary.LittleEndian.AppendUint64(code, uint64(v.At))
		if v.Other != nil {
			code = append(code, names[v.Other.Rank], byte(v.Other.Attempt), generation(v.Other.Pid))
		}
		set(v.Missing)
		for _, rank := range order {
			code = append(code, byte(v.Attempts[rank]))
		}
	}
	for _, rank := range order {
		code = append(code, own[rank]...)
		r, m := &w.ranks[rank].request, w.ranks[rank].m
		of := make([][]byte, len(order)) // the keys that belong to a rank
		for _, key := range r.Keys {
			k := parseKey(key)
			if part := []byte{k.kind, byte(k.round), byte(k.attempt)}; k.ranked {
				of[names[k.rank]] = append(of[names[k.rank]], part...)
			} else {
				code = append(code, part...)
			}
		}
		for _, keys := range of {
			code = append(append(code, byte(len(keys))), keys...)
		}
		if r.Op == Swap && parseKey(r.Keys[0]).kind == 'v' {
			judgement(string(r.Value))
		}
		set(m.asked)
		set(m.there)
		set(m.away)
	}
	for round := 1; ; round++ {
		text, judged := w.board[verdictKey(round)]
		count, counted := w.board[countKey(round)]
		if !judged && !counted && round > 1 {
			break
		}
		n, _ := strconv.Atoi(count)
		code = append(code, '/', byte(min(n, len(order)))) // more are as good
		if !judged {
			continue
		}
		judgement(text)
	}
	return append(code, byte(w.deaths), byte(w.cuts), byte(w.lates), byte(w.hours))
}

func flags(all ...bool) (bits byte) {
	for i, each := range all {
		if each {
			bits |= 1 << i
		}
	}
	return bits
}

// boardKey is a key in parts.
type boardKey struct {
	kind                 byte
	ranked               bool // it belongs to a rank
	rank, round, attempt int
}

var parsedKeys sync.Map

func parseKey(key string) boardKey {
	if k, ok := parsedKeys.Load(key); ok {
		return k.(boardKey)
	}
	parts := strings.Split(key, "/")
	number := func(i int) int {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	k := boardKey{kind: parts[1][0]}
	if parts[0] != "goccl" {
		k.kind = '?' // a mutant's
	}
	switch parts[1] {
	case "came":
		k.ranked, k.rank = true, number(2)
	case "offer":
		k.ranked, k.round, k.rank, k.attempt = true, number(2), number(3), number(4)
	case "read":
		k.ranked, k.round, k.rank = true, number(2), number(3)
	default:
		k.round = number(2)
	}
	parsedKeys.Store(key, k)
	return k
}

var parsedTexts sync.Map

// parsed returns what parse makes of a text, which it does once.
func parsed[T any](text string, parse func(string) *T) *T {
	if v, ok := parsedTexts.Load(text); ok {
		return v.(*T)
	}
	v := parse(text)
	parsedTexts.Store(text, v)
	return v
}

func (w *world) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(w.board)) {
		fmt.Fprintf(&b, "%s=%s\n", key, w.board[key])
	}
	for _, p := range w.ranks {
		fmt.Fprintf(&b, "process %d, attempt %d, in round %d: over %v, next %d %v %s\n", p.pid, p.m.self.Attempt, p.m.round,
			p.m.over, p.request.Op, p.request.Keys, p.request.Value)
	}
	fmt.Fprintf(&b, "to come: %d deaths, %d cuts, %d late\n", w.deaths, w.cuts, w.lates)
	return b.String()
}
