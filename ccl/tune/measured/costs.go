package measured

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/tune/predicted"
)

// Sample is how long calls between two ranks took, of which a fit makes costs.
type Sample struct {
	Coll      dtype.Collective // dtype.Send for a ping-pong, of which a call is one direction
	Algorithm string
	Bytes     int64
	Calls     int       // that followed one another in a block
	Blocks    []float64 // seconds of a call, in each block
	Crowded   bool      // both ranks were on one core
}

// Seconds returns the median of the blocks.
func (s *Sample) Seconds() float64 {
	all := slices.Sorted(slices.Values(s.Blocks))
	return all[len(all)/2]
}

// element is the size of the elements of all samples.
const element = 4

// Fit returns the costs of a network between two hosts, or of two ranks of one host, that bring
// predictions closest to what was measured; all other costs are those of before, and so is what
// Kernels measures. Misfit is by which part the prediction of a sample misses it, in the middle.
//
// It changes one cost after the other by a factor, as long as that helps, and then takes smaller
// factors. What it minimises is the mean of how far predictions are off, no one of which counts for
// more than 30 %: so the calls that something else has disturbed do not count for much.
func Fit(samples []Sample, between bool, before cost.Table) (made cost.Table, misfit float64, err error) {
	if err := enough(samples); err != nil {
		return before, 0, err
	}
	f := &fit{samples: samples, costs: before}
	hosts := 1
	if between {
		hosts = 2
	}
	on, err := Group(2, hosts, Slot, !between)
	if err == nil {
		f.spacious, err = predicted.New(on, &f.costs)
	}
	if err == nil {
		on, err = groupOn("0", 1, 2, hosts, Slot, !between)
	}
	if err == nil {
		f.crowded, err = predicted.New(on, &f.costs)
	}
	if err != nil {
		return before, 0, err
	}
	var parameters []*float64
	c := &f.costs
	turn := &c.Memory.Switch
	if between {
		turn = &c.Network.Switch
		f.guessNetwork()
		n := &c.Network
		parameters = []*float64{&n.Bandwidth, &n.Burst, &n.Latency, &n.Send.Each, &n.Receive.Each, &n.Send.Byte,
			&n.Receive.Byte}
	} else {
		m, w := &c.Memory, &c.Windows
		parameters = []*float64{&m.Latency, &w.Signal, &w.Latency, &w.Wait, &c.Call, &c.Cache}
		// A fragment is copied twice, and what is read of a window is copied or reduced.
		m.Send.Byte, m.Send.Miss, m.Receive.Byte, m.Receive.Miss = c.Copy.Byte, c.Copy.Miss, c.Copy.Byte, c.Copy.Miss
		w.Read.Byte, w.Read.Miss = 0, 0
		parameters = append(parameters, &m.Send.Each, &m.Send.Far, &m.Receive.Each, &m.Receive.Far, &w.Read.Each,
			&w.Read.Far, &c.Copy.Each, &c.Reduce.Each)
	}
	if slices.ContainsFunc(samples, func(s Sample) bool { return s.Crowded }) {
		parameters = append(parameters, turn)
	}
	f.descend(parameters)
	if !between { // what is written into a window is as far as what is written into a slot
		c.Copy.Far, c.Reduce.Far = c.Memory.Send.Far, c.Memory.Send.Far
	}
	if f.err == nil {
		misfit = f.misfit()
	}
	return f.costs, misfit, f.err
}

// enough reports what a fit lacks.
func enough(samples []Sample) error {
	least, most := int64(math.MaxInt64), int64(0)
	for i := range samples {
		s := &samples[i]
		if len(s.Blocks) == 0 || !(s.Seconds() > 0) {
			return fmt.Errorf("%v of %d bytes took no time", s.Coll, s.Bytes)
		}
		if s.Coll == dtype.Send {
			least, most = min(least, s.Bytes), max(most, s.Bytes)
		}
	}
	if least > Smallest || most < Largest {
		return fmt.Errorf("a fit needs a ping-pong of %d bytes or less, and one of %d or more", Smallest, Largest)
	}
	return nil
}

// A fit needs a message that is latency and little else, and one of several fragments or nearly.
const (
	Smallest = 1 << 10
	Largest  = 64 << 10
)

// fit is a search for costs.
type fit struct {
	samples           []Sample
	costs             cost.Table
	spacious, crowded *predicted.Predictor // of ranks that have a core each, and that share one
	err               error
}

// guessNetwork begins with what the samples say by themselves.
func (f *fit) guessNetwork() {
	n := &f.costs.Network
	shortest := math.Inf(1)
	n.Bandwidth = 1
	for i := range f.samples {
		s := &f.samples[i]
		if s.Coll == dtype.Send {
			shortest = min(shortest, s.Seconds())
		} else {
			n.Bandwidth = max(n.Bandwidth, float64(s.Bytes)/s.Seconds())
		}
	}
	n.Burst = 1
	for i := range f.samples { // what a message is faster than the bandwidth
		if s := &f.samples[i]; s.Coll == dtype.Send {
			n.Burst = max(n.Burst, float64(s.Bytes)-(s.Seconds()-shortest)*n.Bandwidth)
		}
	}
	each := min(shortest/3, longOverhead)
	n.Latency, n.Send.Each, n.Receive.Each = shortest-2*each, each, each
	n.Send.Byte, n.Receive.Byte = 0.05/n.Bandwidth, 0.05/n.Bandwidth
	n.TCP()
}

// longOverhead is as long as a core takes for a short fragment, if the path is long.
const longOverhead = 5e-6

// Factors of a search.
const (
	firstFactor = 2
	lastFactor  = 1.003
	mostOff     = 0.3
)

// descend searches along one cost after the other.
func (f *fit) descend(parameters []*float64) {
	best := f.loss()
	for factor := float64(firstFactor); factor > lastFactor && f.err == nil; {
		better := false
		for _, p := range parameters {
			for _, by := range []float64{factor, 1 / factor} {
				for f.err == nil { // on in a direction that helps
					before := *p
					*p *= by
					if loss := f.loss(); loss < best {
						best, better = loss, true
						continue
					}
					*p = before
					break
				}
			}
		}
		if !better {
			factor = math.Sqrt(factor)
		}
	}
}

// off returns by which factor, as a logarithm, the prediction of each sample is off.
func (f *fit) off() []float64 {
	f.costs.Network.TCP()
	all := make([]float64, len(f.samples))
	f.err = errors.Join(f.spacious.Refresh(), f.crowded.Refresh())
	for i := range f.samples {
		s, by := &f.samples[i], f.spacious
		if s.Crowded {
			by = f.crowded
		}
		if f.err != nil {
			break
		}
		var seconds float64
		if s.Coll == dtype.Send {
			seconds, f.err = by.PingPong(s.Bytes, s.Calls)
		} else {
			seconds, f.err = by.Call(s.Coll, s.Algorithm, s.Bytes, element, s.Calls)
		}
		all[i] = math.Log(seconds / s.Seconds())
	}
	return all
}

func (f *fit) loss() float64 {
	sum := 0.0
	for _, off := range f.off() {
		sum += min(math.Abs(off), mostOff)
	}
	return sum / float64(len(f.samples))
}

func (f *fit) misfit() float64 {
	off := f.off()
	for i := range off {
		off[i] = math.Abs(math.Expm1(off[i]))
	}
	slices.Sort(off)
	return off[len(off)/2]
}

// Spread returns by which part the slowest block of a sample is slower than the fastest, in the
// middle of all samples.
func Spread(samples []Sample) float64 {
	all := make([]float64, len(samples))
	for i := range samples {
		s := &samples[i]
		all[i] = slices.Max(s.Blocks)/slices.Min(s.Blocks) - 1
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// Slot is the bytes of a slot of a window, unless an option says otherwise.
const Slot = 1 << 20
