package plan

import (
	"math"
	"strconv"
)

// extentRun is the short form of a list of Extents: each From, for it each To, for it each Part,
// from the first of the two numbers to the second, up or down; the whole list times times. If block
// is set, From is ignored: each block has From = To.
type extentRun struct {
	From, To, Part [2]int
	block          bool
	times          int
}

func span(r [2]int) int { return max(r[0]-r[1], r[1]-r[0]) + 1 }

func toward(r [2]int, i int) int {
	if r[0] > r[1] {
		return r[0] - i
	}
	return r[0] + i
}

// len returns the number of Extents of r, or -1 if there are more than most. The numbers of r must
// be 0 to MaxInt32.
func (r *extentRun) len(most int) int {
	n := 1
	for _, k := range []int{r.froms(), span(r.To), span(r.Part), r.times} {
		if k > most/n {
			return -1
		}
		n *= k
	}
	return n
}

func (r *extentRun) froms() int {
	if r.block {
		return 1
	}
	return span(r.From)
}

// expand appends the Extents of r.
func (r *extentRun) expand(list []Extent) []Extent {
	for range r.times {
		for f := range r.froms() {
			for t := range span(r.To) {
				e := Extent{From: toward(r.From, f), To: toward(r.To, t)}
				if r.block {
					e.From = e.To
				}
				for i := range span(r.Part) {
					e.Part = toward(r.Part, i)
					list = append(list, e)
				}
			}
		}
	}
	return list
}

// expand returns the Extents of runs.
func expand(runs []extentRun) []Extent {
	n := 0
	for i := range runs {
		n += runs[i].len(math.MaxInt)
	}
	if n == 0 {
		return nil
	}
	list := make([]Extent, 0, n)
	for i := range runs {
		list = runs[i].expand(list)
	}
	return list
}

// append writes r: TO/PART, or FROM>TO/PART, then *TIMES if times is more than 1; ranges as
// FIRST..LAST.
func (r *extentRun) append(b []byte) []byte {
	number := func(n [2]int) {
		b = strconv.AppendInt(b, int64(n[0]), 10)
		if n[1] != n[0] {
			b = strconv.AppendInt(append(b, ".."...), int64(n[1]), 10)
		}
	}
	if !r.block {
		number(r.From)
		b = append(b, '>')
	}
	number(r.To)
	b = append(b, '/')
	number(r.Part)
	if r.times > 1 {
		b = strconv.AppendInt(append(b, '*'), int64(r.times), 10)
	}
	return b
}

// compress returns the runs of a list. It is greedy, so that its result depends on the list alone.
func compress(list []Extent) []extentRun {
	var runs []extentRun
	for i, e := range list {
		r := extentRun{From: [2]int{e.From, e.From}, To: [2]int{e.To, e.To}, Part: [2]int{e.Part, e.Part},
			block: e.From == e.To, times: 1}
		if i > 0 {
			last := &runs[len(runs)-1]
			if last.From == r.From && last.To == r.To && grows(last.Part, e.Part) {
				last.Part[1] = e.Part
				continue
			}
		}
		runs = append(runs, r)
	}
	// Parts of neighbouring blocks, then pairs of neighbouring ranks, then repetitions.
	runs = merge(runs, func(a, b *extentRun) bool {
		if a.Part != b.Part || !grows(a.To, b.To[0]) {
			return false
		}
		switch {
		case a.block && b.block:
			a.From[1] = b.To[0]
		case a.pairs() && a.From == b.From:
			a.block = false
		default:
			return false
		}
		a.To[1] = b.To[0]
		return true
	})
	runs = merge(runs, func(a, b *extentRun) bool {
		ok := a.pairs() && b.pairs() && a.Part == b.Part && a.To == b.To && grows(a.From, b.From[0])
		if ok {
			a.From[1], a.block = b.From[0], false
		}
		return ok
	})
	return merge(runs, func(a, b *extentRun) bool {
		times := a.times
		a.times = b.times
		ok := *a == *b
		a.times = times
		if ok {
			a.times++
		}
		return ok
	})
}

// pairs reports whether r can be written as FROM>TO.
func (r *extentRun) pairs() bool { return !r.block || r.To[0] == r.To[1] }

// grows reports whether n continues a range of numbers.
func grows(r [2]int, n int) bool {
	if r[0] == r[1] {
		return n == r[1]+1 || n == r[1]-1
	}
	return n == r[1]+(r[1]-r[0])/(span(r)-1)
}

// merge joins neighbouring runs, from the left, if join succeeds.
func merge(runs []extentRun, join func(a, b *extentRun) bool) []extentRun {
	kept := runs[:0]
	for i := range runs {
		if len(kept) > 0 && join(&kept[len(kept)-1], &runs[i]) {
			continue
		}
		kept = append(kept, runs[i])
	}
	return kept
}

// text returns e in the text form.
func (e Extent) text() string { return string(compress([]Extent{e})[0].append(nil)) }
