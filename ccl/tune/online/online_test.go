package online

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

const usual = 7

// offers returns an Offer of the same candidates for all classes.
func offers(after uint64, others ...int) Offer {
	return func(dtype.Collective, int64, int) ([]int, uint64) { return others, after }
}

// try runs calls on one rank, each of which takes what its algorithm takes, and returns what ran.
func try(t *Tuner, calls int, took map[int]uint64) (ran []int, agreed int) {
	for number := range calls {
		turn := t.Turn(dtype.AllReduce, 1000, usual, uint64(number)+1)
		if turn.Agree {
			agreed++
			t.Agree(t.Times())
			turn = t.Turn(dtype.AllReduce, 1000, usual, uint64(number)+1)
		}
		ran = append(ran, turn.Algorithm)
		if turn.Trial {
			t.Took(took[turn.Algorithm])
		}
	}
	return ran, agreed
}

func TestTrials(t *testing.T) {
	for _, test := range []struct {
		name   string
		offer  Offer
		took   map[int]uint64
		ran    []int // at first; then it is the winner
		agreed int
		winner int
	}{
		{"nothing to try", offers(2), map[int]uint64{}, []int{usual}, 0, usual},
		{"others are much slower", offers(2, 1, 2), map[int]uint64{usual: 100, 1: 300, 2: 210},
			[]int{usual, usual, usual, 1, 2}, 1, usual},
		{"another is slower", offers(0, 1), map[int]uint64{usual: 100, 1: 150}, []int{usual, 1, 1, usual}, 2, usual},
		{"others are much alike", offers(0, 1, 2), map[int]uint64{usual: 100, 1: 95, 2: 108},
			[]int{usual, 1, 2, 2, 1, usual, usual, 1}, 3, usual},
		{"one wins", offers(0, 1, 2), map[int]uint64{usual: 100, 1: 80, 2: 99},
			[]int{usual, 1, 2, 2, 1, usual, usual, 1}, 3, 1},
		{"not by enough", offers(0, 1), map[int]uint64{usual: 100, 1: 92},
			[]int{usual, 1, 1, usual, usual, 1}, 3, usual},
		{"more than may be tried", offers(0, 1, 2, 3), map[int]uint64{usual: 100, 1: 300, 2: 300, 3: 1},
			[]int{usual, 1, 2}, 1, usual},
	} {
		t.Run(test.name, func(t *testing.T) {
			told := 0
			tuner := New(test.offer, func(r *Result) {
				require.Equal(t, []int64{513, 1024}, []int64{r.Low, r.High})
				require.Equal(t, test.winner, r.Algorithms[r.Winner])
				told++
			})
			ran, agreed := try(tuner, 20, test.took)
			for i, algorithm := range ran {
				want := test.winner
				if i < len(test.ran) {
					want = test.ran[i]
				}
				require.Equal(t, want, algorithm, "call %d of %v", i, ran)
			}
			require.Equal(t, test.agreed, agreed)
			require.Equal(t, min(test.agreed, 1), told)
			require.Equal(t, test.winner, tuner.Choice(dtype.AllReduce, 600, usual))
			require.Equal(t, usual+1, tuner.Choice(dtype.AllReduce, 600, usual+1), "another choice is another class")
			require.Equal(t, usual, tuner.Choice(dtype.AllReduce, 2000, usual))
			require.Equal(t, usual, tuner.Choice(dtype.AllGather, 600, usual))
		})
	}
}

// Until then calls need not be asked about.
func TestUntil(t *testing.T) {
	tuner := New(offers(100, 1), func(*Result) {})
	require.Equal(t, Turn{Algorithm: usual, Until: 105}, tuner.Turn(dtype.Reduce, 8, usual, 5))
	require.Equal(t, Turn{Algorithm: usual, Until: 105}, tuner.Turn(dtype.Reduce, 8, usual, 104))
	require.True(t, tuner.Turn(dtype.Reduce, 8, usual, 4000).Trial)
	none := New(offers(100), func(*Result) {})
	require.Equal(t, Turn{Algorithm: usual, Until: Never}, none.Turn(dtype.Reduce, 8, usual, 5))
}

func TestMostClasses(t *testing.T) {
	tuner := New(offers(0, 1), func(*Result) {})
	for class := range MostClasses + 2 {
		turn := tuner.Turn(dtype.Broadcast, 1<<class, usual, 1)
		require.Equal(t, class < MostClasses, turn.Trial)
	}
}

// Candidates that no rank can run are left out; the usual choice stays whatever it can.
func TestDrop(t *testing.T) {
	tuner := New(offers(0, 1, 2), func(r *Result) {
		require.Equal(t, []uint64{50, Never, 40}, r.Times)
		require.Equal(t, []int{3, 0, 3}, r.Trials)
	})
	var ran []int
	for number := range uint64(10) {
		turn := tuner.Turn(dtype.AllReduce, 8, usual, number)
		for turn.Trial && turn.Algorithm == 1 {
			require.True(t, tuner.Drop())
			turn = tuner.Turn(dtype.AllReduce, 8, usual, number)
		}
		if turn.Agree {
			tuner.Agree(tuner.Times())
			turn = tuner.Turn(dtype.AllReduce, 8, usual, number)
		}
		if turn.Trial {
			require.Equal(t, turn.Algorithm != usual, turn.Algorithm == 2)
			tuner.Took(map[int]uint64{usual: 50, 2: 40}[turn.Algorithm])
		}
		ran = append(ran, turn.Algorithm)
	}
	require.Equal(t, []int{usual, 2, 2, usual, usual, 2, 2, 2, 2, 2}, ran)

	alone := New(offers(0, 1), func(r *Result) { require.Zero(t, r.Winner) })
	require.True(t, alone.Turn(dtype.AllReduce, 8, usual, 1).Trial)
	require.False(t, alone.Drop())
	require.True(t, alone.Turn(dtype.AllReduce, 8, usual, 2).Trial)
	require.True(t, alone.Drop())
	require.True(t, alone.Turn(dtype.AllReduce, 8, usual, 2).Agree)
	alone.Agree(alone.Times()) // a trial that was refused took no time
	require.Equal(t, Turn{Algorithm: usual, Until: Never}, alone.Turn(dtype.AllReduce, 8, usual, 2))
}

// Ranks whose calls take any time at all run the same in every call, and agree in the same calls.
func TestRanksNeverDiffer(t *testing.T) {
	for run := range uint64(1000) {
		order := rand.New(rand.NewPCG(run, 0))
		ranks := 2 + order.IntN(5)
		offer := func(_ dtype.Collective, bytes int64, usual int) (others []int, after uint64) {
			for i := range int(bytes+int64(usual)) % 3 {
				others = append(others, 100+i)
			}
			return others, uint64(bytes) % 20
		}
		tuners, winners := make([]*Tuner, ranks), make([][]Result, ranks)
		delays := make([]*rand.Rand, ranks)
		for rank := range tuners {
			tuners[rank] = New(offer, func(r *Result) { winners[rank] = append(winners[rank], *r) })
			delays[rank] = rand.New(rand.NewPCG(run, uint64(rank)+1))
		}
		took := map[string]uint64{}
		for number := range uint64(300) {
			coll, bytes, usual := []dtype.Collective{dtype.AllReduce, dtype.Broadcast}[order.IntN(2)],
				int64(1+order.IntN(40)), order.IntN(2)
			refused := order.IntN(10) == 0
			turns := make([]Turn, ranks)
			ask := func() {
				for rank, tuner := range tuners {
					turns[rank] = tuner.Turn(coll, bytes, usual, number)
					require.Equal(t, turns[0], turns[rank], "run %d, call %d, rank %d", run, number, rank)
				}
			}
			if ask(); turns[0].Agree {
				longest := make([]uint64, len(tuners[0].Times()))
				for _, tuner := range tuners {
					for i, time := range tuner.Times() {
						longest[i] = max(longest[i], time)
					}
				}
				for _, tuner := range tuners {
					tuner.Agree(longest)
				}
				ask()
				require.False(t, turns[0].Agree)
			}
			if !turns[0].Trial || refused {
				continue
			}
			key := fmt.Sprint(coll, bytes, turns[0].Algorithm)
			if took[key] == 0 {
				took[key] = 1 + order.Uint64N(1000)
			}
			for rank, tuner := range tuners {
				tuner.Took(took[key] + delays[rank].Uint64N(1000)/(1+delays[rank].Uint64N(100)))
			}
		}
		for rank := range winners {
			require.Equal(t, winners[0], winners[rank])
		}
	}
}

func BenchmarkTurn(b *testing.B) {
	tuner := New(offers(0), func(*Result) {})
	b.ReportAllocs()
	for b.Loop() {
		tuner.Turn(dtype.AllReduce, 1000, usual, 1)
	}
}
