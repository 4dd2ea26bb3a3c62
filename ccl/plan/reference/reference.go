// Package reference defines what plans mean: it is an interpreter for tests, as simple as possible.
// All ranks run in one loop, in whole steps, over unbounded channels, one element after the other.
// The results of an executor must have the same bits, since the plan determines the order of the
// operators.
package reference

import (
	"fmt"
	"math/rand"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// Number is the type of an element.
type Number interface{ ~int32 | ~int64 | ~float32 }

// Interpreter is a plan in execution.
type Interpreter[T Number] struct {
	Programs []plan.Program
	Memory   [][4][][]T // by rank, buffer, chunk
	PC       [][]int    // by rank, lane: the next step
	p        *plan.Plan
	op       dtype.Op
	factor   float64
	messages map[[3]int][][][]T
	signals  map[[3]int]int
}

// Run returns the blocks of Out of every rank. in contains the blocks of In of every rank; length
// returns the number of elements of a block. Run fails if the plan does not end.
func Run[T Number](
	p *plan.Plan, op dtype.Op, factor float64, in [][][]T, length func(plan.Extent) int,
) ([][][]T, error) {
	return Scheduled(p, op, factor, in, length, nil)
}

// Scheduled is Run with the lanes in a random order; if dice is nil, they take turns.
func Scheduled[T Number](
	p *plan.Plan, op dtype.Op, factor float64, in [][][]T, length func(plan.Extent) int, dice *rand.Rand,
) ([][][]T, error) {
	ranks := p.Spec.Ranks
	m := New(p, op, factor, in, length)
	var lanes [][2]int
	for rank := range ranks {
		for lane := range m.Programs[rank].Lanes {
			lanes = append(lanes, [2]int{rank, lane})
		}
	}
	for moved := true; moved; {
		moved = false
		if dice != nil {
			dice.Shuffle(len(lanes), func(i, k int) { lanes[i], lanes[k] = lanes[k], lanes[i] })
		}
		for _, at := range lanes {
			for m.Step(at[0], at[1]) {
				moved = true
				if dice != nil && dice.Intn(2) == 0 {
					break
				}
			}
		}
	}
	out := make([][][]T, ranks)
	for rank, program := range m.Programs {
		for lane, steps := range program.Lanes {
			if m.PC[rank][lane] != len(steps) {
				return nil, fmt.Errorf("the reference is stuck at rank %d, lane %d, step %d: %v",
					rank, lane, m.PC[rank][lane], steps[m.PC[rank][lane]].Kind)
			}
		}
		out[rank] = m.Out(rank)
	}
	return out, nil
}

// New lays out the memory of all ranks.
func New[T Number](
	p *plan.Plan, op dtype.Op, factor float64, in [][][]T, length func(plan.Extent) int,
) *Interpreter[T] {
	m := &Interpreter[T]{p: p, op: op, factor: factor,
		messages: map[[3]int][][][]T{}, signals: map[[3]int]int{}}
	for rank := range p.Spec.Ranks {
		program := p.Program(rank)
		program = program.Flat()
		m.Programs = append(m.Programs, program)
		m.PC = append(m.PC, make([]int, len(program.Lanes)))
		var memory [4][][]T
		for _, block := range in[rank] {
			for j := range p.Split {
				lo, hi := plan.Part(len(block), p.Split, j)
				memory[plan.In] = append(memory[plan.In], block[lo:hi:hi])
			}
		}
		counts := map[plan.Buffer]int{
			plan.Out: p.OutChunks(rank), plan.Tmp: len(program.Tmp), plan.Win: len(program.Win),
		}
		for buf, chunks := range counts {
			for i := range chunks {
				e := p.Extent(rank, &program, buf, i)
				lo, hi := plan.Part(length(e), p.Split, e.Part)
				memory[buf] = append(memory[buf], make([]T, hi-lo))
			}
		}
		m.Memory = append(m.Memory, memory)
	}
	return m
}

// Out returns the blocks of Out of a rank.
func (m *Interpreter[T]) Out(rank int) (out [][]T) {
	chunks := m.Memory[rank][plan.Out]
	for b := 0; b < len(chunks); b += m.p.Split {
		var block []T
		for j := range m.p.Split {
			block = append(block, chunks[b+j]...)
		}
		out = append(out, block)
	}
	return out
}

// Step executes the next step of a lane, if possible.
func (m *Interpreter[T]) Step(rank, lane int) bool {
	steps := m.Programs[rank].Lanes[lane]
	if m.PC[rank][lane] == len(steps) {
		return false
	}
	s := &steps[m.PC[rank][lane]]
	for _, a := range s.After {
		if m.PC[rank][a.Lane] <= a.Step {
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
			if s.Kind.Traits().From {
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
		case !s.Kind.Traits().Reduces:
			m.write(rank, s, message)
		case s.MsgFirst:
			m.write(rank, s, m.combine(message, m.read(rank, s.Src[0])))
		default:
			m.write(rank, s, m.combine(m.read(rank, s.Src[0]), message))
		}
	case plan.Put, plan.Packet:
		m.write(s.Peer, s, m.read(rank, s.Src[0]))
		if s.Kind.Traits().Signals {
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
	m.PC[rank][lane]++
	return true
}

// read returns copies of chunks. For PREMUL_SUM those of In are multiplied.
func (m *Interpreter[T]) read(rank int, r plan.Ref) [][]T {
	chunks := make([][]T, r.N)
	for i := range chunks {
		chunks[i] = append([]T(nil), m.Memory[rank][r.Buf][r.At+i]...)
		if m.op == dtype.PremulSum && r.Buf == plan.In {
			scale(chunks[i], m.factor)
		}
	}
	return chunks
}

func (m *Interpreter[T]) write(rank int, s *plan.Step, chunks [][]T) {
	for i, x := range chunks {
		if s.Final && m.op == dtype.Avg {
			scale(x, 1/float64(m.p.Spec.Ranks))
		}
		if to := m.Memory[rank][s.Dst.Buf][s.Dst.At+i]; copy(to, x) != len(x) || len(to) != len(x) {
			panic(fmt.Sprintf("%d elements for a chunk of %d", len(x), len(to)))
		}
	}
}

func (m *Interpreter[T]) combine(left, right [][]T) [][]T {
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

func scale[T Number](x []T, factor float64) {
	for i := range x {
		x[i] = T(float64(x[i]) * factor)
	}
}

// RandomBlocks returns the blocks of In of every rank, with four elements for each chunk.
func RandomBlocks(p *plan.Plan, dice *rand.Rand) [][][]int32 {
	in := make([][][]int32, p.Spec.Ranks)
	for rank := range in {
		for range p.Spec.Coll.InBlocks(p.Spec.Ranks, rank, p.Spec.Root) {
			block := make([]int32, 4*p.Split)
			for i := range block {
				block[i] = dice.Int31n(1000)
			}
			in[rank] = append(in[rank], block)
		}
	}
	return in
}
