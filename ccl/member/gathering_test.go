package member

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// gathered is a group whose ranks gather, and the notes between them.
type gathered struct {
	ranks []*Gathering
	begun []bool
	wires [][][]Note // from, to
	dead  int        // a rank that has died, or -1
}

func gatherAll(ranks, most int) *gathered {
	w := &gathered{begun: make([]bool, ranks), dead: -1}
	for rank := range ranks {
		w.ranks = append(w.ranks, NewGathering(rank, ranks, most))
		w.wires = append(w.wires, make([][]Note, ranks))
	}
	return w
}

func (w *gathered) tell(from int, all []Told) {
	for _, each := range all {
		for to := range w.ranks {
			if to != from && (each.To == All || each.To == to) {
				w.wires[from][to] = append(w.wires[from][to], each.Note)
			}
		}
	}
}

// run takes random ways through what may happen: ranks begin, newcomers come and go, notes arrive,
// a rank dies, the time is up.
func (w *gathered) run(t *testing.T, r *rand.Rand, newcomers int, dies bool) {
	type event func()
	comes := 0
	offers := map[string]int{} // by offer: the rank it has come to
	for range 10_000 {
		var all []event
		for rank, g := range w.ranks {
			if rank == w.dead {
				continue
			}
			if !w.begun[rank] {
				all = append(all, func() { w.begun[rank] = true; w.tell(rank, g.Begin()) })
				continue
			}
			if comes < newcomers {
				all = append(all, func() {
					comes++
					offer := fmt.Sprint("offer ", comes)
					offers[offer] = rank
					w.tell(rank, g.Came([]byte(offer)))
				})
			}
			for offer, at := range offers {
				if at == rank && r.IntN(4) == 0 {
					all = append(all, func() { delete(offers, offer); w.tell(rank, g.Left([]byte(offer))) })
				}
			}
			for from := range w.ranks {
				if len(w.wires[from][rank]) > 0 {
					all = append(all, func() {
						n := w.wires[from][rank][0]
						w.wires[from][rank] = w.wires[from][rank][1:]
						again, err := ParseNote(n.Encode())
						require.NoError(t, err)
						require.Equal(t, n, again)
						w.tell(rank, g.Hear(from, n))
					})
				}
			}
			if g.Complete() && !g.late && comes == newcomers {
				all = append(all, func() { w.tell(rank, g.Late()) })
			}
			if dies && w.dead < 0 {
				all = append(all, func() {
					w.dead = rank
					for to := range w.ranks {
						w.wires[rank][to] = w.wires[rank][to][:r.IntN(len(w.wires[rank][to])+1)]
					}
				})
			}
		}
		if len(all) == 0 {
			return
		}
		all[r.IntN(len(all))]()
	}
	t.Fatal("it does not end")
}

// TestGathering: all ranks that have a list have the same; without a death all have one, of at most
// all the offers, each once.
func TestGathering(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		ranks, most, newcomers, dies := 1+r.IntN(4), 1+r.IntN(3), r.IntN(5), r.IntN(2) == 0
		w := gatherAll(ranks, most)
		w.run(t, r, newcomers, dies)
		var first [][]byte
		known := false
		for rank, g := range w.ranks {
			list, decided, err := g.Outcome()
			require.NoError(t, err)
			if w.dead < 0 {
				require.True(t, decided, "seed %d: rank %d waits for %v", seed, rank, g.Awaited())
				require.Empty(t, g.Awaited())
			}
			if !decided {
				require.True(t, rank == w.dead || len(g.Awaited()) > 0, "seed %d, rank %d", seed, rank)
				continue
			}
			require.LessOrEqual(t, len(list), most)
			seen := map[string]bool{}
			for _, offer := range list {
				require.False(t, seen[string(offer)])
				seen[string(offer)] = true
			}
			if known {
				require.Equal(t, len(first), len(list))
				for i := range list {
					require.Equal(t, first[i], list[i])
				}
			}
			first, known = list, true
		}
	}
}

func TestGatheringMismatch(t *testing.T) {
	g := NewGathering(0, 2, 3)
	g.Begin()
	require.Empty(t, g.Hear(1, Note{Kind: noteHere, Most: 2}))
	_, decided, err := g.Outcome()
	require.False(t, decided)
	require.ErrorIs(t, err, fault.Mismatch)
	require.ErrorContains(t, err, "rank 0 takes 3, rank 1 takes 2")
	_, err = ParseNote([]byte("?"))
	require.Error(t, err)
}

// TestGatheringComesAgain: a newcomer that leaves one rank and comes to another has come, in
// whatever order rank 0 hears of that.
func TestGatheringComesAgain(t *testing.T) {
	g := NewGathering(0, 3, 2)
	g.Begin()
	offer := []byte("offer")
	for _, n := range []struct {
		from int
		kind noteKind
	}{{1, noteHere}, {2, noteHere}, {1, noteCame}, {2, noteCame}, {1, noteLeft}} {
		require.Empty(t, g.Hear(n.from, Note{Kind: n.kind, Most: 2, Offer: offer}))
	}
	require.NotEmpty(t, g.Late())
	list, decided, err := g.Outcome()
	require.NoError(t, err)
	require.True(t, decided)
	require.Equal(t, [][]byte{offer}, list)
}
