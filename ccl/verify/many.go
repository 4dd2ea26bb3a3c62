package verify

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

const (
	manyGCPercent = 800
	manyMemory    = 2 << 30 // above this, garbage is collected as often as needed
)

// Case is a plan to be proven by Many. Level and Time are what came of it.
type Case struct {
	Spec     plan.Spec
	Make     func(plan.Spec) (*plan.Plan, error)
	Name     string // of the algorithm
	Declared int    // its level of determinism
	Level    Level
	Time     time.Duration
}

// Many proves plans, several at a time. It returns the error of the first case, in their order,
// that was found wrong before all workers stopped.
func Many(cases []Case, jobs int) error {
	// Each case leaves much garbage and keeps little memory, so less frequent garbage collection
	// saves a third of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(manyGCPercent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(manyMemory))
	var next atomic.Int64
	var stop atomic.Bool
	var workers sync.WaitGroup
	errs := make([]error, len(cases))
	for range min(jobs, len(cases)) {
		workers.Go(func() {
			for !stop.Load() {
				i := len(cases) - int(next.Add(1)) // backwards: the large cases are at the end of an algorithm
				if i < 0 {
					return
				}
				start := time.Now()
				errs[i] = cases[i].prove()
				if cases[i].Time = time.Since(start); errs[i] != nil {
					stop.Store(true)
				}
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Case) prove() error {
	p, err := c.Make(c.Spec)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "%v/%s, %v", c.Spec.Coll, c.Name, c.Spec)
	}
	report, err := Plan(p, Options{})
	if err != nil {
		return err
	}
	c.Level = report.Determinism
	if c.Spec.Ranks > 2 && int(c.Level) < c.Declared {
		return fault.New(fault.Invalid, "%v/%s, %v: determinism is level %d, but the algorithm declares level %d",
			c.Spec.Coll, c.Name, c.Spec, int(c.Level), c.Declared)
	}
	return nil
}
