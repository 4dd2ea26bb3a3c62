package exec_test

import (
	"fmt"
	"math/rand"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

type number interface{ ~int32 | ~int64 | ~float32 }

// reference is a second implementation of what plans mean, as plain as possible: all ranks in one
// loop, whole steps, unlimited channels, one element at a time. What the executor does must have
// the same bits, since the order of the operators is the plan's.
type reference[T number] struct {
	p        *plan.Plan
	op       dtype.Op
	factor   float64
	programs []plan.Program
	memory   [][4][][]T // by rank, buffer, chunk
	pc       [][]int    // by rank, lane
	messages map[[3]int][][][]T
	signals  map[[3]int]int
}

// result is every rank's blocks of Out. in is every rank's blocks of In; length the elements of a
// block.
func result[T number](p *plan.Plan, op dtype.Op, factor float64, in [][][]T, length func(plan.Extent) int) ([][][]T, error) {
	return scheduled(p, op, factor, in, length, nil)
}

// scheduled is result in a schedule that dice draw.
func scheduled[T number](p *plan.Plan, op dtype.Op, factor float64, in [][][]T, length func(plan.Extent) int, dice *rand.Rand) ([][][]T, error) {
	ranks := p.Spec.Ranks
	m := newReference(p, op, factor, in, length)
	var lanes [][2]int
	for rank := range ranks {
		for lane := range m.programs[rank].Lanes {
			lanes = append(lanes, [2]int{rank, lane})
		}
	}
	for moved := true; moved; {
		moved = false
		if dice != nil {
			dice.Shuffle(len(lanes), func(i, k int) { lanes[i], lanes[k] = lanes[k], lanes[i] })
		}
		for _, at := range lanes {
			for m.step(at[0], at[1]) {
				moved = true
				if dice != nil && dice.Intn(2) == 0 {
					break
				}
			}
		}
	}
	out := make([][][]T, ranks)
	for rank, program := range m.programs {
		for lane, steps := range program.Lanes {
			if m.pc[rank][lane] != len(steps) {
				return nil, fmt.Errorf("the reference is stuck at rank %d, lane %d, step %d: %v", rank, lane, m.pc[rank][lane], steps[m.pc[rank][lane]].Kind)
			}
		}
		out[rank] = m.result(rank)
	}
	return out, nil
}

// newReference lays out the memory of all ranks.
func newReference[T number](p *plan.Plan, op dtype.Op, factor float64, in [][][]T, length func(plan.Extent) int) *reference[T] {
	m := &reference[T]{p: p, op: op, factor: factor, messages: map[[3]int][][][]T{}, signals: map[[3]int]int{}}
	for rank := range p.Spec.Ranks {
		program := p.Program(rank)
		program = program.Flat()
		m.programs = append(m.programs, program)
		m.pc = append(m.pc, make([]int, len(program.Lanes)))
		var memory [4][][]T
		for _, block := range in[rank] {
			for j := range p.Split {
				lo, hi := plan.Part(len(block), p.Split, j)
				memory[plan.In] = append(memory[plan.In], block[lo:hi:hi])
			}
		}
		for buf, chunks := range map[plan.Buffer]int{plan.Out: p.OutChunks(rank), plan.Tmp: len(program.Tmp), plan.Win: len(program.Win)} {
			for i := range chunks {
				e := p.Extent(rank, &program, buf, i)
				lo, hi := plan.Part(length(e), p.Split, e.Part)
				memory[buf] = append(memory[buf], make([]T, hi-lo))
			}
		}
		m.memory = append(m.memory, memory)
	}
	return m
}

// result is a rank's blocks of Out.
func (m *reference[T]) result(rank int) (out [][]T) {
	chunks := m.memory[rank][plan.Out]
	for b := 0; b < len(chunks); b += m.p.Split {
		var block []T
		for j := range m.p.Split {
			block = append(block, chunks[b+j]...)
		}
		out = append(out, block)
	}
	return out
}

// step does the next step of a lane, if it can be done.
func (m *reference[T]) step(rank, lane int) bool {
	steps := m.programs[rank].Lanes[lane]
	if m.pc[rank][lane] == len(steps) {
		return false
	}
	s := &steps[m.pc[rank][lane]]
	for _, a := range s.After {
		if m.pc[rank][a.Lane] <= a.Step {
			return false
		}
	}
	from, to := [3]int{s.Peer, rank, s.Chan}, [3]int{rank, s.Peer, s.Chan}
	switch s.Kind {
	case plan.Copy:
		m.write(rank, s, m.read(rank, s.Src[0]))
	case plan.Reduce, plan.GetReduce:
		var sum [][]T
		for i, r := range s.Src {
			at := rank
			if s.Kind == plan.GetReduce {
				at = s.From[i]
			}
			if x := m.read(at, r); i == 0 {
				sum = x
			} else {
				sum = m.combine(sum, x)
			}
		}
		m.write(rank, s, sum)
	case plan.Get:
		m.write(rank, s, m.read(s.Peer, s.Src[0]))
	case plan.Send:
		m.messages[to] = append(m.messages[to], m.read(rank, s.Src[0]))
	case plan.Recv, plan.RecvReduce:
		queue := m.messages[from]
		if len(queue) == 0 {
			return false
		}
		message := queue[0]
		m.messages[from] = queue[1:]
		switch {
		case s.Kind == plan.Recv:
			m.write(rank, s, message)
		case s.MsgFirst:
			m.write(rank, s, m.combine(message, m.read(rank, s.Src[0])))
		default:
			m.write(rank, s, m.combine(m.read(rank, s.Src[0]), message))
		}
	case plan.Put, plan.Packet:
		m.write(s.Peer, s, m.read(rank, s.Src[0]))
		if s.Kind == plan.Packet {
			m.signals[to]++
		}
	case plan.Signal:
		m.signals[to]++
	case plan.Wait:
		if m.signals[from] == 0 {
			return false
		}
		m.signals[from]--
	}
	m.pc[rank][lane]++
	return true
}

// read copies chunks, scaled as a read of In is.
func (m *reference[T]) read(rank int, r plan.Ref) [][]T {
	chunks := make([][]T, r.N)
	for i := range chunks {
		chunks[i] = append([]T(nil), m.memory[rank][r.Buf][r.At+i]...)
		if m.op == dtype.PremulSum && r.Buf == plan.In {
			scale(chunks[i], m.factor)
		}
	}
	return chunks
}

func (m *reference[T]) write(rank int, s *plan.Step, chunks [][]T) {
	for i, x := range chunks {
		if s.Final && m.op == dtype.Avg {
			scale(x, 1/float64(m.p.Spec.Ranks))
		}
		if to := m.memory[rank][s.Dst.Buf][s.Dst.At+i]; copy(to, x) != len(x) || len(to) != len(x) {
			panic(fmt.Sprintf("%d elements for a chunk of %d", len(x), len(to)))
		}
	}
}

func (m *reference[T]) combine(left, right [][]T) [][]T {
	both := make([][]T, len(left))
	for i := range left {
		both[i] = make([]T, len(left[i]))
		for j, x := range left[i] {
			if m.op == dtype.Max {
				both[i][j] = max(x, right[i][j])
			} else {
				both[i][j] = x + right[i][j]
			}
		}
	}
	return both
}

func scale[T number](x []T, factor float64) {
	for i := range x {
		x[i] = T(float64(x[i]) * factor)
	}
}
