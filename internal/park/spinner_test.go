package park

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fresh resets what this process has learned, and restores it after the test.
func fresh(t testing.TB) {
	core, lost, until, patience := share.core.Load(), share.lost.Load(), share.sleepUntil.Load(), share.patience.Load()
	spin := spinFor.Load()
	share.presume(false)
	SetSpin(-1)
	for _, l := range []*learner{&foreground, &background} {
		chosen := l.chosen.Load()
		var costs [len(choices)]int64
		for i := range costs {
			costs[i] = l.costs[i].Load()
			l.costs[i].Store(0)
		}
		l.chosen.Store(0)
		t.Cleanup(func() {
			l.chosen.Store(chosen)
			for i, c := range costs {
				l.costs[i].Store(c)
			}
		})
	}
	t.Cleanup(func() {
		share.core.Store(core)
		share.lost.Store(lost)
		share.sleepUntil.Store(until)
		share.patience.Store(patience)
		spinFor.Store(spin)
	})
}

// vain calls Turn until s wants to sleep, and counts the turns.
func vain(t testing.TB, s *Spinner) (turns int, took time.Duration) {
	start := time.Now()
	for s.Turn() {
		turns++
		require.Less(t, time.Since(start), 20*time.Second, "a wait must end in sleep")
	}
	return turns, time.Since(start)
}

func TestEveryWaitEndsInSleep(t *testing.T) {
	for name, prepare := range map[string]func(){
		"free cores":         func() {},
		"shared cores":       func() { share.presume(true) },
		"computing beside":   func() { share.sleepUntil.Store(now() + int64(time.Hour)) },
		"the longest choice": func() { foreground.chosen.Store(0); background.chosen.Store(0) },
		"the shortest choice": func() {
			foreground.chosen.Store(int32(len(choices) - 1))
			background.chosen.Store(int32(len(choices) - 1))
		},
		"never":         func() { SetSpin(0) },
		"a millisecond": func() { SetSpin(time.Millisecond) },
	} {
		for _, inBackground := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				fresh(t)
				prepare()
				s := Spinner{Background: inBackground}
				for range 3 {
					require.True(t, s.Spinning())
					vain(t, &s)
					require.False(t, s.Turn(), "it stays so until Reset")
					require.False(t, s.Spinning())
					s.Reset()
				}
			})
		}
	}
}

func TestSetSpin(t *testing.T) {
	fresh(t)
	var s Spinner
	SetSpin(0)
	require.False(t, s.Turn(), "never spins, never yields")
	s.Reset()
	SetSpin(3 * time.Millisecond)
	_, took := vain(t, &s)
	require.GreaterOrEqual(t, took, 3*time.Millisecond)
	s.Reset()
	SetSpin(time.Hour)
	require.Equal(t, int64(MaxSpin), spinFor.Load())
	SetSpin(-time.Hour)
	require.Negative(t, spinFor.Load(), "adaptive")
	share.presume(false) // discards what the yields above have shown about this machine
	require.Equal(t, foreground.budget(), s.budget())
}

// TestBlindPart checks that waits spin blindly only on cores that no other thread needs, and only
// if a caller waits for them.
func TestBlindPart(t *testing.T) {
	blindly := func(s *Spinner) bool {
		defer s.Reset()
		return s.Turn() && s.phase == blind
	}
	fresh(t)
	require.True(t, blindly(&Spinner{}))
	require.False(t, blindly(&Spinner{Background: true}))
	share.presume(true)
	require.False(t, blindly(&Spinner{}))
	share.patience.Store(1)
	require.True(t, blindly(&Spinner{}), "those who compute may stop")
	// Discards the yields above, which may have been long on a busy machine.
	share.presume(true)
	s := Spinner{}
	require.True(t, s.Turn(), "it yields once at least")
	require.False(t, s.Spinning())
}

func TestBudgetOnSharedCores(t *testing.T) {
	fresh(t)
	foreground.chosen.Store(int32(len(choices) - 1))
	background.chosen.Store(int32(len(choices) - 1))
	require.Zero(t, (&Spinner{}).budget())
	share.presume(true)
	require.Equal(t, crowdSpan, (&Spinner{}).budget())
	require.Zero(t, (&Spinner{Background: true}).budget(), "nobody waits for it")
}

func TestComputingBesideMeansSleeping(t *testing.T) {
	fresh(t)
	share.presume(true)
	share.sleepUntil.Store(now() + int64(time.Hour))
	var s Spinner
	require.False(t, s.Turn())
	share.patience.Store(1)
	s.Reset()
	turns, _ := vain(t, &s)
	require.Positive(t, turns, "blindly for a while")
	require.Equal(t, s.limit, s.since, "and no yield")
}

func TestWhatYieldsTell(t *testing.T) {
	quick, switched, slice := mostBareYield/2, int64(5*time.Microsecond), int64(1500*time.Microsecond)
	var x sharing
	at := int64(1)
	yields := func(n int, took int64) {
		for range n {
			x.yielded(at, at+took)
			at += took
		}
	}
	yields(3, switched)
	require.Less(t, x.core.Load(), int32(shared), "a few slow ones are chance")
	yields(20, switched)
	require.GreaterOrEqual(t, x.core.Load(), int32(shared))
	yields(20, quick)
	require.Less(t, x.core.Load(), int32(shared))
	yields(1000, int64(300*time.Microsecond))
	require.Zero(t, x.sleepUntil.Load(), "peers that work between waits are no reason to sleep")

	// One time slice lost in many yields is worth it; several in a row are not.
	for range 20 {
		yields(1, slice)
		yields(1000, quick)
	}
	require.Zero(t, x.sleepUntil.Load())
	yields(10, slice)
	require.Greater(t, x.sleepUntil.Load(), at)
	require.GreaterOrEqual(t, x.patience.Load(), leastPatient)
	for range 100 { // each new attempt finds the same
		at = max(at, x.sleepUntil.Load())
		yields(1, slice)
		require.LessOrEqual(t, x.sleepUntil.Load(), at+mostPatient)
	}
	require.Equal(t, at+mostPatient, x.sleepUntil.Load())
	at = x.sleepUntil.Load()
	yields(500, quick)
	require.Zero(t, x.patience.Load(), "forgotten")
	require.Less(t, x.sleepUntil.Load(), at)

	x.presume(true)
	require.EqualValues(t, 2*shared, x.core.Load())
	require.Zero(t, x.sleepUntil.Load())
}

func TestLearnerChoosesTheCheapest(t *testing.T) {
	cost := wakeCost()
	for _, c := range []struct {
		name  string
		waits []int64 // in hundredths of a wakeCost, repeated
		fore  int64   // the budget, in quarters of a wakeCost
		back  int64
	}{
		{"short", []int64{20}, 16, 16},
		{"as long as a wake-up", []int64{90}, 16, 16},
		{"three wake-ups", []int64{300}, 16, 0},
		{"long", []int64{100_000}, 0, 0},
		{"often short", []int64{20, 20, 20, 20, 20, 100_000}, 1, 1},
		{"half long", []int64{20, 100_000}, 1, 1},
		{"for ever", []int64{1 << 40}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			fresh(t)
			for range 200 {
				for _, d := range c.waits {
					foreground.observe(d * cost / 100)
					background.observe(d * cost / 100)
				}
			}
			require.Equal(t, c.fore*cost/4, foreground.budget())
			require.Equal(t, c.back*cost/4, background.budget())
		})
	}
}

// TestLearnerNeverRegretsMuch checks that the cost of a wait has a bound that does not depend on
// what was learned.
func TestLearnerNeverRegretsMuch(t *testing.T) {
	fresh(t)
	cost := wakeCost()
	longest := choices[len(choices)-1] * cost / 4
	for d := int64(1); d < 1<<40; d *= 2 {
		foreground.observe(d)
		require.LessOrEqual(t, foreground.budget(), longest)
	}
	require.Zero(t, foreground.budget(), "long waits sleep")
	for range 40 {
		foreground.observe(cost / 8)
	}
	require.Positive(t, foreground.budget(), "and short ones are learned again")
}

func TestWaitsAreLearnedFrom(t *testing.T) {
	fresh(t)
	for range 100 {
		share.presume(false)
		var s Spinner
		vain(t, &s)
		s.since -= int64(time.Second) // as if it had slept that long
		s.Reset()
	}
	require.Zero(t, foreground.budget())
	SetSpin(time.Microsecond)
	before := foreground.costs[0].Load()
	var s Spinner
	vain(t, &s)
	s.Reset()
	require.Equal(t, before, foreground.costs[0].Load(), "a fixed time is not learned from")
}

func TestCalibrate(t *testing.T) {
	calibrate()
	require.GreaterOrEqual(t, wakeCost(), leastWakeCost)
	require.LessOrEqual(t, wakeCost(), mostWakeCost)
	require.GreaterOrEqual(t, bareYield.Load(), leastBareYield)
	require.LessOrEqual(t, bareYield.Load(), mostBareYield)
	t.Logf("to sleep and be woken takes %v, to yield %v",
		time.Duration(measureWake(16)), time.Duration(measureYield(32)))
}

func TestRelax(t *testing.T) {
	fresh(t)
	SetSpin(0)
	var s Spinner
	for range 100 {
		s.Relax()
	}
	require.True(t, s.Spinning(), "it is no wait")
}

func TestTurnAllocatesNothing(t *testing.T) {
	fresh(t)
	var s Spinner
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for s.Turn() {
		}
		s.Reset()
	}))
}

// BenchmarkTurn measures the cost of a young wait that ends after a few checks.
func BenchmarkTurn(b *testing.B) {
	for _, looks := range []int{1, 8, 64} {
		b.Run(map[int]string{1: "first", 8: "eight", 64: "sixty-four"}[looks], func(b *testing.B) {
			fresh(b)
			for b.Loop() {
				var s Spinner
				for range looks {
					s.Turn()
				}
				s.Reset()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(looks), "ns/turn")
		})
	}
}

func BenchmarkPause(b *testing.B) {
	for b.Loop() {
		Pause(1)
	}
}

func BenchmarkClock(b *testing.B) {
	for b.Loop() {
		now()
	}
}

func BenchmarkYield(b *testing.B) {
	for b.Loop() {
		yield()
	}
}
