package online

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
)

const usual = 7

// exchanges is how often the ranks exchange times in a round.
const exchanges = 5

// offers returns an Offer of the same candidates for all classes, each later than the one before.
func offers(after uint64, others ...int) Offer {
	return func(dtype.Collective, int64, int) (all []Candidate) {
		for i, other := range others {
			all = append(all, Candidate{other, after * uint64(i+1)})
		}
		return all
	}
}

// try runs calls on one rank, each of which takes what its algorithm takes, and returns what ran, a
// byte for each call, and how often the ranks agreed.
func try(t *Tuner, calls int, took map[int]uint64) (ran string, agreed int) {
	for number := range uint64(calls) {
		turn := t.Turn(dtype.AllReduce, 1000, usual, number)
		if turn.Agree {
			agreed++
			t.Agree(t.Times(), 0)
			turn = t.Turn(dtype.AllReduce, 1000, usual, number)
		}
		ran += fmt.Sprint(turn.Algorithm)
		if took := took[turn.Algorithm]; turn.Trial && took != Never { // otherwise it was refused
			t.Took(took)
		}
	}
	return ran, agreed
}

func TestTrials(t *testing.T) {
	for _, test := range []struct {
		name   string
		offer  Offer
		took   map[int]uint64
		ran    string // at first; then it is the winner
		rounds int
		winner int
		told   []string
	}{
		{"nothing to try", offers(2), nil, "77", 0, usual, nil},
		{"others are much slower", offers(2, 1, 2), map[int]uint64{usual: 100, 1: 300, 2: 210},
			"77" + "7777" + "1111" + "7" + "7777" + "2222" + "7", 2, usual, []string{"7 1 1 false", "7 2 1 false"}},
		{"the second comes later", offers(12, 1, 2), map[int]uint64{usual: 100, 1: 300, 2: 210},
			"777777777777" + "7777" + "1111" + "7" + "777" + "7777" + "2222" + "7", 2, usual,
			[]string{"7 1 1 false", "7 2 1 false"}},
		{"another is slower", offers(0, 1), map[int]uint64{usual: 100, 1: 140},
			"7777" + "1111" + "7" + "1111" + "7777" + "7", 2, usual, []string{"7 1 2 false"}},
		{"one wins", offers(0, 1), map[int]uint64{usual: 100, 1: 80},
			"7777" + "1111" + "7" + "1111" + "7777" + "7", 2, 1, []string{"7 1 2 true"}},
		{"two win", offers(0, 1, 2), map[int]uint64{usual: 100, 1: 80, 2: 60},
			"7777" + "1111" + "7" + "1111" + "7777" + "7" + "1111" + "2222" + "1" + "2222" + "1111" + "1", 4, 2,
			[]string{"7 1 2 true", "1 2 2 true"}},
		{"not by enough", offers(0, 1), map[int]uint64{usual: 100, 1: 92},
			"7777" + "1111" + "7" + "1111" + "7777" + "7", 2, usual, []string{"7 1 2 false"}},
		{"refused calls", offers(0, 1), map[int]uint64{usual: Never, 1: Never},
			"7777" + "1111" + "7" + "1111" + "7777" + "7", 2, usual, []string{"7 1 2 false"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var told []string
			tuner := New(test.offer, func(r *Result) {
				require.Equal(t, []int64{513, 1024}, []int64{r.Low, r.High})
				require.Equal(t, [2]uint64{test.took[r.Current], test.took[r.Candidate]}, r.Times)
				told = append(told, fmt.Sprint(r.Current, r.Candidate, r.Rounds, r.Won))
			})
			ran, agreed := try(tuner, 40, test.took)
			require.Equal(t, test.ran+strings.Repeat(fmt.Sprint(test.winner), 40-len(test.ran)), ran)
			require.Equal(t, exchanges*test.rounds, agreed)
			require.Equal(t, test.told, told)
			require.Equal(t, test.winner, tuner.Choice(dtype.AllReduce, 600, usual))
			require.Equal(t, usual+1, tuner.Choice(dtype.AllReduce, 600, usual+1), "another choice is another class")
			require.Equal(t, usual, tuner.Choice(dtype.AllReduce, 2000, usual))
			require.Equal(t, usual, tuner.Choice(dtype.AllGather, 600, usual))
		})
	}
}

// What counts of a trial is its last calls, and the wait for the other ranks behind them. Of the
// best times of all ranks the longest counts.
func TestTimesOfRanks(t *testing.T) {
	tuner := New(offers(0, 1), func(*Result) {})
	ask := func() Turn { return tuner.Turn(dtype.AllReduce, 8, usual, 0) }
	trial := func(algorithm int, took ...uint64) {
		for i, time := range took {
			if i == warm {
				require.True(t, ask().Agree)
				tuner.Agree(tuner.Times(), 1000)
			}
			require.Equal(t, Turn{Algorithm: algorithm, Trial: true}, ask())
			tuner.Took(time)
		}
		require.True(t, ask().Agree)
		tuner.Agree(tuner.Times(), 30)
	}
	trial(usual, 900, 800, 100, 90)
	trial(1, 900, 80, 100, 50)
	require.Equal(t, Turn{Algorithm: usual, Until: 1}, ask())
	require.True(t, ask().Agree)
	require.Equal(t, []uint64{110, 90}, tuner.Times())
	tuner.Agree([]uint64{110, 164}, 0)
	trial(1, 1, 1, 120, 120)
	require.Equal(t, []uint64{110, 90}, tuner.Times())
	trial(usual, 1, 1, 20, 30)
	require.Equal(t, []uint64{40, 90}, tuner.Times())
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

func TestLost(t *testing.T) {
	for times, lost := range map[float64]float64{0.5: 0, 1: 0, 1.25: 2, 1.5: 4, 2: 4, 4: 12} {
		require.Equal(t, lost, Lost(times), "%v times as long", times)
	}
}

// A candidate that no rank can run is given up; the current choice stays whatever it can.
func TestDrop(t *testing.T) {
	tuner := New(offers(0, 1, 2), func(*Result) { t.Error("there were no trials") })
	ask := func() Turn {
		turn := tuner.Turn(dtype.AllReduce, 8, usual, 1)
		if turn.Agree {
			tuner.Agree(tuner.Times(), 0)
			turn = tuner.Turn(dtype.AllReduce, 8, usual, 1)
		}
		return turn
	}
	for other := 1; other <= 2; other++ {
		for range turns {
			require.Equal(t, Turn{Algorithm: usual, Trial: true}, ask())
			require.False(t, tuner.Drop())
		}
		require.Equal(t, Turn{Algorithm: other, Trial: true}, ask())
		require.True(t, tuner.Drop())
	}
	require.Equal(t, Turn{Algorithm: usual, Until: Never}, ask())
}

// Ranks whose calls take any time at all run the same in every call, and agree in the same calls.
func TestRanksNeverDiffer(t *testing.T) {
	won := 0
	for run := range uint64(1000) {
		order := rand.New(rand.NewPCG(run, 0))
		ranks := 2 + order.IntN(5)
		offer := func(_ dtype.Collective, bytes int64, usual int) (all []Candidate) {
			for i := range int(bytes+int64(usual)) % 3 {
				all = append(all, Candidate{100 + i, uint64(bytes)%20 + uint64(5*i)})
			}
			return all
		}
		tuners, winners := make([]*Tuner, ranks), make([][]Result, ranks)
		delays := make([]*rand.Rand, ranks)
		for rank := range tuners {
			tuners[rank] = New(offer, func(r *Result) { winners[rank] = append(winners[rank], *r) })
			delays[rank] = rand.New(rand.NewPCG(run, uint64(rank)+1))
		}
		took := map[string]uint64{}
		for number := range uint64(300) {
			coll, bytes := []dtype.Collective{dtype.AllReduce, dtype.Broadcast}[order.IntN(2)], int64(1+order.IntN(8))
			usual, refused := order.IntN(2), order.IntN(10) == 0
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
				for rank, tuner := range tuners {
					tuner.Agree(longest, delays[rank].Uint64N(100))
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
		for _, r := range winners[0] {
			if r.Won {
				won++
			}
		}
	}
	require.Greater(t, won, 500)
}

func BenchmarkTurn(b *testing.B) {
	tuner := New(offers(0), func(*Result) {})
	b.ReportAllocs()
	for b.Loop() {
		tuner.Turn(dtype.AllReduce, 1000, usual, 1)
	}
}
