package plan

import "fmt"

// HasPeer reports whether Peer means something in the step.
func (s *Step) HasPeer() bool { return s.Kind.Traits().Peer }

// step describes what is wrong with an unrolled step of lane l, which must not be a loop; "" if
// nothing is.
func (v *validator) step(l int, s *Step) string {
	if s.Kind >= numKinds || s.Kind == Loop {
		return "unknown kind"
	}
	if wrong := v.fields(s); wrong != "" {
		return wrong
	}
	if wrong := v.refs(s); wrong != "" {
		return wrong
	}
	return v.dependences(l, s)
}

// fields checks everything about a step except its Refs and dependences.
func (v *validator) fields(s *Step) string {
	uses := s.Kind.Traits()
	switch n := len(s.Src); {
	case uses.Many && n < 2:
		return fmt.Sprintf("%d sources, want two or more", n)
	case !uses.Reads && n != 0:
		return fmt.Sprintf("%d sources, want none", n)
	case uses.Reads && !uses.Many && n != 1:
		return fmt.Sprintf("%d sources, want one", n)
	case uses.From && len(s.From) != n:
		return fmt.Sprintf("%d sources from %d ranks, want a rank for each", n, len(s.From))
	case !uses.From && len(s.From) != 0:
		return "only the sources of getreduce have ranks"
	case s.Times != 0 || len(s.Body) != 0:
		return "it is no loop, but has Times or Body"
	case !uses.Writes && s.Dst != Ref{}:
		return "it writes nothing, but has a Dst"
	case !uses.Peer && (s.Peer != 0 || s.Chan != 0):
		return "it is no message, but has a peer or a channel"
	case uses.Peer && (s.Peer < 0 || s.Peer >= v.p.Spec.Ranks):
		return fmt.Sprintf("peer %d of %d ranks", s.Peer, v.p.Spec.Ranks)
	case uses.Peer && s.Peer == v.rank && uses.Message():
		return "a rank sends no messages to itself; use copy"
	case uses.Peer && s.Peer == v.rank:
		return "the peer is this rank itself; use copy, and order its lanes by after"
	case uses.Peer && !uses.Message() && !uses.Flagged() && s.Chan != 0:
		return "it has no channel and no flag"
	case uses.Message() && (s.Chan < 0 || s.Chan >= v.p.Chans):
		return fmt.Sprintf("channel %d, the plan has %d", s.Chan, v.p.Chans)
	case uses.Flagged() && (s.Chan < 0 || s.Chan >= v.p.Flags):
		return fmt.Sprintf("flag %d, the plan has %d", s.Chan, v.p.Flags)
	case uses.Reduces && !v.p.Spec.Coll.Reduces():
		return fmt.Sprintf("%v has no operator to reduce with", v.p.Spec.Coll)
	case s.MsgFirst && !(uses.Receives && uses.Reduces):
		return "only recvreduce has MsgFirst"
	case s.Final && !uses.Final:
		return "only copy, reduce, recvreduce, get and getreduce can be Final"
	case s.Final && !v.p.Spec.Coll.Reduces():
		return fmt.Sprintf("%v reduces nothing, so nothing is Final", v.p.Spec.Coll)
	case uses.Need&^v.p.Needs != 0:
		return fmt.Sprintf("the plan does not declare the need %v", uses.Need)
	}
	return ""
}

// refs checks the Refs of a step whose fields are valid.
func (v *validator) refs(s *Step) string {
	uses := s.Kind.Traits()
	if uses.Writes {
		if wrong := v.ref("dst", s.Dst, uses.Empty, uses.Puts); wrong != "" {
			return wrong
		}
		if s.Dst.Buf == In {
			return "it writes in, which belongs to the caller"
		}
	}
	for i, src := range s.Src {
		remote := uses.Gets
		if uses.From {
			from := s.From[i]
			if from < 0 || from >= v.p.Spec.Ranks {
				return fmt.Sprintf("source %d is of rank %d of %d", i, from, v.p.Spec.Ranks)
			}
			remote = from != v.rank
		}
		if wrong := v.ref("source", src, uses.Empty, remote); wrong != "" {
			return wrong
		}
		if uses.Writes {
			if wrong := v.pair(s, src, remote || uses.Puts); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}

// ref checks that r exists, in a buffer of this rank or in a peer's window. It is written so that
// no sum of unchecked numbers overflows.
func (v *validator) ref(what string, r Ref, mayBeEmpty, remote bool) string {
	if r.Buf >= numBuffers {
		return fmt.Sprintf("%s is in no buffer", what)
	}
	chunks := v.chunks[r.Buf]
	if remote {
		if r.Buf != Win {
			return fmt.Sprintf("%s is in %v of another rank; only win can be reached", what, r.Buf)
		}
		chunks = v.p.Win
	}
	switch {
	case r.N < 0 || r.N > chunks || r.At < 0 || r.At > chunks-r.N:
		return fmt.Sprintf("%s is chunks %d to %d+%d of %v, which has %d", what, r.At, r.At, r.N, r.Buf, chunks)
	case r.N == 0 && !mayBeEmpty:
		return fmt.Sprintf("%s is empty", what)
	}
	return ""
}

// pair checks a source against the Dst of its step. If one of them is in another rank's window,
// only their numbers of chunks can be compared here.
func (v *validator) pair(s *Step, src Ref, remote bool) string {
	if src.N != s.Dst.N {
		return fmt.Sprintf("%v and %v have different numbers of chunks", s.Dst, src)
	}
	if remote || src == s.Dst && s.Kind.Traits().Reduces {
		return ""
	}
	if src.Overlaps(s.Dst) {
		return fmt.Sprintf("%v overlaps %v", s.Dst, src)
	}
	i, ok := v.congruent(s.Dst, src)
	switch {
	case *v.budget < 0:
		return tooMuch
	case !ok:
		return fmt.Sprintf("%v and %v may have different lengths (chunk %d of them)", s.Dst, src, i)
	}
	return ""
}

// congruent compares the Extents of two Refs with the same number of chunks, run by run. If they
// differ, it returns the index of the first chunk that does.
func (v *validator) congruent(a, b Ref) (int, bool) {
	for i := 0; i < a.N; {
		if v.extent(a, i) != v.extent(b, i) {
			return i, false
		}
		i += min(v.run(a.Buf, a.At+i), v.run(b.Buf, b.At+i))
		if *v.budget--; *v.budget < 0 {
			return i, false
		}
	}
	return 0, true
}

func (v *validator) extent(r Ref, i int) Extent {
	return v.p.Extent(v.rank, v.prog, r.Buf, r.At+i)
}

// run returns how many chunks from this one on are consecutive parts of one block.
func (v *validator) run(buf Buffer, chunk int) int {
	if buf == In || buf == Out {
		return v.p.Split - chunk%v.p.Split
	}
	if v.runs[buf] == nil {
		list := v.prog.Tmp
		if buf == Win {
			list = v.prog.Win
		}
		runs := make([]int32, len(list))
		for i := len(list) - 1; i >= 0; i-- {
			runs[i] = 1
			next := list[i]
			next.Part++
			if i+1 < len(list) && list[i+1] == next {
				runs[i] = runs[i+1] + 1
			}
		}
		v.runs[buf] = runs
	}
	return int(v.runs[buf][chunk])
}

// dependences describes what is wrong with the After of a step of lane l; "" if nothing is.
func (v *validator) dependences(l int, s *Step) string {
	for _, a := range s.After {
		switch {
		case a.Lane < 0 || a.Lane >= len(v.lens):
			return fmt.Sprintf("it comes after lane %d, the program has %d", a.Lane, len(v.lens))
		case a.Lane == l:
			return "it comes after a step of its own lane; lanes run in order anyway"
		case a.Step < 0 || a.Step >= v.lens[a.Lane]:
			return fmt.Sprintf("it comes after step %d of lane %d, which has %d", a.Step, a.Lane, v.lens[a.Lane])
		}
	}
	return ""
}
