package cudatest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/cudatest"
)

// model is what a random program does, as a graph: who comes before whom is found by searching it.
type model struct {
	before [][]int // of each node
	reads  [][2]int
	writes [][2]int // cells of each node, from and to
}

func (m *model) node(before ...int) int {
	var known []int
	for _, b := range before {
		if b >= 0 {
			known = append(known, b)
		}
	}
	m.before = append(m.before, known)
	m.reads, m.writes = append(m.reads, [2]int{}), append(m.writes, [2]int{})
	return len(m.before) - 1
}

// races reports whether two nodes conflict and neither comes before the other.
func (m *model) races() bool {
	earlier := make([][]bool, len(m.before))
	for i, before := range m.before {
		earlier[i] = make([]bool, i)
		for _, b := range before {
			earlier[i][b] = true
			for j, is := range earlier[b] {
				earlier[i][j] = earlier[i][j] || is
			}
		}
		for j := range i {
			conflict := overlap(m.writes[i], m.writes[j]) || overlap(m.writes[i], m.reads[j]) ||
				overlap(m.reads[i], m.writes[j])
			if conflict && !earlier[i][j] {
				return true
			}
		}
	}
	return false
}

func overlap(a, b [2]int) bool { return a[0] < b[1] && b[0] < a[1] }

// TestRandomPrograms compares what is reported with a search of the graph. A program has a race or
// none, whatever the order in which its streams are executed.
func TestRandomPrograms(t *testing.T) {
	programs, racy := 1500, 0
	if testing.Short() {
		programs = 300
	}
	for program := range uint64(programs) {
		t.Run(fmt.Sprint(program), func(t *testing.T) {
			for seed := range uint64(2) {
				b := newBench(t, cudatest.Options{Seed: seed, Queues: 3, Delay: -1})
				steps := 4 + int(program%16) // in long ones, one race hides another
				want, got := b.random(rand.New(rand.NewPCG(program, 1)), steps).races(), false
				for _, r := range b.d.Reports() {
					if got = true; r.Kind != cudatest.Race {
						t.Fatal(r)
					}
				}
				if got != want {
					t.Errorf("seed %d: has a race: %v; reported: %v", seed, want, b.d.Reports())
				}
				if want {
					racy++
				}
			}
		})
	}
	if racy < programs/4 || racy > programs*7/4 {
		t.Errorf("%d of %d programs have races: that is no good mixture", racy, 2*programs)
	}
}

// random runs a program. What waits is always enqueued behind what it waits for.
func (b *bench) random(r *rand.Rand, steps int) *model {
	const (
		streams = 4
		cells   = 12
		cell    = 16
	)
	m := &model{}
	memory, words := b.register(cells*cell), b.register(4096)
	var all [streams]cuda.Stream
	last := [streams]int{-1, -1, -1, -1} // the last node of each
	events, recorded := [3]cuda.Event{}, [3]int{-1, -1, -1}
	written := [streams][]int{} // nodes: stream i writes 1, 2, … to word i
	for i := range all {
		all[i] = b.stream()
	}
	for i := range events {
		events[i] = b.event()
	}
	host := m.node()
	on := func(i int, before ...int) int {
		last[i] = m.node(append(before, last[i], host)...)
		return last[i]
	}
	span := func() (from, to int) {
		from = r.IntN(cells - 2)
		return from, from + 1 + r.IntN(3)
	}
	for range steps {
		i := r.IntN(streams)
		switch r.IntN(10) {
		case 0, 1, 2:
			from, end := span()
			n := end - from
			to := r.IntN(cells - n + 1)
			if overlap([2]int{from, end}, [2]int{to, to + n}) {
				continue
			}
			b.must(all[i].Copy(memory.Ptr()+cuda.Ptr(to*cell), memory.Ptr()+cuda.Ptr(from*cell), n*cell))
			node := on(i)
			m.reads[node], m.writes[node] = [2]int{from, end}, [2]int{to, to + n}
		case 3:
			e := r.IntN(len(events))
			b.must(events[e].Record(all[i]))
			recorded[e] = on(i)
		case 4, 5:
			if e := r.IntN(len(events)); recorded[e] >= 0 {
				b.must(all[i].Wait(events[e]))
				on(i, recorded[e])
			}
		case 6:
			written[i] = append(written[i], on(i))
			b.write(all[i], words, 64*i, uint64(len(written[i])))
		case 7, 8:
			if w := r.IntN(streams); len(written[w]) > 0 {
				n := r.IntN(len(written[w]))
				b.wait(all[i], words, 64*w, uint64(n+1))
				on(i, written[w][n])
			}
		case 9:
			from, end := span()
			host = m.node(host)
			if write := r.IntN(2) == 0; write {
				b.writes(memory, from*cell, (end-from)*cell)
				m.writes[host] = [2]int{from, end}
			} else {
				b.reads(memory, from*cell, (end-from)*cell)
				m.reads[host] = [2]int{from, end}
			}
			if r.IntN(3) == 0 {
				b.ends(all[i])
				host = m.node(host, last[i])
			}
		}
	}
	b.ends(all[:]...)
	return m
}
