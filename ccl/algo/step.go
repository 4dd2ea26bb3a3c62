package algo

import "github.com/goccl/goccl/ccl/plan"

// The lanes of a rank that sends and receives.
const (
	sending   = 0
	receiving = 1
)

func in(i int) plan.Ref  { return plan.Ref{Buf: plan.In, At: i, N: 1} }
func out(i int) plan.Ref { return plan.Ref{Buf: plan.Out, At: i, N: 1} }
func tmp(i int) plan.Ref { return plan.Ref{Buf: plan.Tmp, At: i, N: 1} }

// afterSend and afterRecv name a step of the sending or the receiving lane.
func afterSend(step int) plan.Point { return plan.Point{Lane: sending, Step: step} }
func afterRecv(step int) plan.Point { return plan.Point{Lane: receiving, Step: step} }

func copyStep(dst, src plan.Ref) plan.Step {
	return plan.Step{Kind: plan.Copy, Dst: dst, Src: []plan.Ref{src}}
}

// reduce is the step dst = left ⊕ right.
func reduce(dst, left, right plan.Ref) plan.Step {
	return plan.Step{Kind: plan.Reduce, Dst: dst, Src: []plan.Ref{left, right}}
}

func send(src plan.Ref, to int, after ...plan.Point) plan.Step {
	return plan.Step{Kind: plan.Send, Src: []plan.Ref{src}, Peer: to, After: after}
}

func recv(dst plan.Ref, from int, after ...plan.Point) plan.Step {
	return plan.Step{Kind: plan.Recv, Dst: dst, Peer: from, After: after}
}

// recvReduce is the step dst = src ⊕ message.
func recvReduce(dst, src plan.Ref, from int, after ...plan.Point) plan.Step {
	return plan.Step{Kind: plan.RecvReduce, Dst: dst, Src: []plan.Ref{src}, Peer: from, After: after}
}

// msgReduce is the step dst = message ⊕ src.
func msgReduce(dst, src plan.Ref, from int, after ...plan.Point) plan.Step {
	s := recvReduce(dst, src, from, after...)
	s.MsgFirst = true
	return s
}

// program makes a program of a sending and a receiving lane, and leaves out an empty one.
func program(sends, recvs []plan.Step, tmp ...plan.Extent) plan.Program {
	p := plan.Program{Tmp: tmp}
	for _, lane := range [][]plan.Step{sends, recvs} {
		if len(lane) > 0 {
			p.Lanes = append(p.Lanes, lane)
		}
	}
	return p
}

// like returns the lengths of the chunks of some Refs of a rank's In or Out.
func like(s plan.Spec, split, rank int, refs ...plan.Ref) []plan.Extent {
	var lengths []plan.Extent
	for _, r := range refs {
		for i := range r.N {
			lengths = append(lengths, s.Extent(split, rank, r.Buf, r.At+i))
		}
	}
	return lengths
}
