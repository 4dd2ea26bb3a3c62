package exec

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// next returns the earliest time at which an operation fails, and the operation.
func (d *deadlines) next() (int64, *Op) {
	if len(d.alarms) == 0 {
		return math.MaxInt64, nil
	}
	return d.alarms[0].at, d.alarms[0].first
}

// TestLine: however many messages there are, a look sees the first of each line; its clock starts
// anew when the one before has ended well, and not when that has failed.
func TestLine(t *testing.T) {
	const many, timeout = 100_000, int64(time.Minute)
	var d deadlines
	ops := make([]*Op, many)
	before := now()
	for i := range ops {
		ops[i] = &Op{timeout: timeout, seq: uint64(i)}
		d.add(ops[i])
		if i == many/2 {
			d.refresh()
		}
	}
	require.Len(t, d.stale, 1)
	d.refresh()
	require.Empty(t, d.stale)
	require.Len(t, d.alarms, 1)
	at, op := d.next()
	require.Same(t, ops[0], op)
	require.InDelta(t, before+timeout, at, float64(time.Second*20))
	require.Same(t, ops[0], d.oldest())

	// Others end first.
	for i := 1; i < many; i++ {
		if i%1000 != 0 {
			d.remove(ops[i], true)
		}
	}
	d.refresh()
	same, op := d.next()
	require.Same(t, ops[0], op)
	require.Equal(t, at, same, "only those before it count")

	d.remove(ops[0], true)
	d.refresh()
	second, op := d.next()
	require.Same(t, ops[1000], op)
	require.Greater(t, second, at, "its turn has just come")

	// Those that fail make no others wait: ops[many/2+1000] was seen by the second look.
	seen := ops[many/2+1].seen
	for i := 1000; i <= many/2; i += 1000 {
		at, op = d.next()
		require.Same(t, ops[i], op)
		require.Equal(t, second, at)
		d.remove(ops[i], false)
		d.refresh()
	}
	at, op = d.next()
	require.Same(t, ops[many/2+1000], op)
	require.Equal(t, max(second, seen+timeout), at)
	for i := many/2 + 1000; i < many; i += 1000 {
		d.remove(ops[i], i%2000 == 0)
	}
	d.refresh()
	require.Empty(t, d.alarms)
	require.Nil(t, d.oldest())
}

// TestLines compares lines with a list that is searched.
func TestLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var d deadlines
		type known struct {
			op    *Op
			since int64 // 0: not seen yet
		}
		var all []*known
		stamp := map[*Op]int64{}
		for range 100 {
			switch n := rng.IntN(10); {
			case n < 5:
				op := &Op{timeout: int64(rng.IntN(4)) * int64(time.Hour), seq: uint64(rng.IntN(1 << 30))}
				d.add(op)
				all = append(all, &known{op: op})
			case n < 8 && len(all) > 0:
				i, well := rng.IntN(len(all)), rng.IntN(2) == 0
				op := all[i].op
				first := op.line.first == op
				all = append(all[:i], all[i+1:]...)
				d.remove(op, well)
				for _, k := range all[i:] {
					if first && k.op.timeout == op.timeout {
						if well {
							k.since = 0
						} else if k.since != 0 {
							k.since = max(k.since, stamp[op])
						}
						stamp[k.op] = k.since
						break
					}
				}
			default:
				before := now()
				d.refresh()
				after := now()
				first := map[int64]*known{}
				for _, k := range all {
					if first[k.op.timeout] == nil {
						first[k.op.timeout] = k
					}
					if k.since == 0 {
						k.since = before
						stamp[k.op] = before
					}
				}
				at, op := d.next()
				want, lines := int64(math.MaxInt64), 0
				for timeout, k := range first {
					if timeout != 0 {
						want = min(want, k.since+timeout)
						lines++
					}
				}
				require.Len(t, d.alarms, lines)
				if op != nil {
					require.Same(t, first[op.timeout].op, op)
					require.InDelta(t, want, at, float64(after-before)+float64(50*time.Millisecond))
				} else {
					require.Equal(t, int64(math.MaxInt64), want)
				}
			}
		}
	}
}

// TestManyTimeouts: with as many timeouts as messages the earliest is found, too, and lines that
// are empty are forgotten.
func TestManyTimeouts(t *testing.T) {
	const many = 10_000
	var d deadlines
	ops := make([]*Op, many)
	for i := range ops {
		ops[i] = &Op{timeout: int64(time.Hour) * int64(1+(i*7919)%many)}
		d.add(ops[i])
	}
	d.refresh()
	require.Len(t, d.alarms, many)
	for hours := int64(1); hours <= many; hours++ {
		_, op := d.next()
		require.Equal(t, int64(time.Hour)*hours, op.timeout)
		d.remove(op, true)
		d.refresh()
	}
	require.Empty(t, d.alarms)
	require.LessOrEqual(t, len(d.lines), mostIdleLines)
}
