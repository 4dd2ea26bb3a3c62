package plan

import "slices"

// oneStep reads a step, beginning with its kind.
func (r *reader) oneStep() Step {
	from := r.at
	kind, ok := parseKind(r.word())
	if !ok {
		r.at = from
		r.fail(from, "%s, want a step: %v", r.found(), kindNames())
		return Step{}
	}
	s := Step{Kind: kind}
	var by Advance
	switch kind {
	case Copy:
		r.dst(&s, &by)
		r.source(&s, &by)
	case Reduce, GetReduce:
		r.dst(&s, &by)
		for more := true; more && r.err == nil; more = r.accept("+") {
			r.source(&s, &by)
			if kind.Traits().From {
				r.sourceRank(&s, &by)
			}
		}
	case Send:
		r.source(&s, &by)
		r.expectWord("to")
		r.peer(&s, &by)
	case Recv:
		s.Dst = r.ref(&by.Dst)
		r.expectWord("from")
		r.peer(&s, &by)
	case RecvReduce:
		r.dst(&s, &by)
		if s.MsgFirst = r.acceptWord("msg"); s.MsgFirst {
			r.expect("+")
			r.source(&s, &by)
		} else {
			r.source(&s, &by)
			r.expect("+")
			r.expectWord("msg")
		}
		r.expectWord("from")
		r.peer(&s, &by)
	case Put, Packet:
		s.Dst = r.ref(&by.Dst)
		r.expect("@")
		r.peer(&s, &by)
		r.expect("=")
		r.source(&s, &by)
	case Get:
		r.dst(&s, &by)
		r.source(&s, &by)
		r.expect("@")
		r.peer(&s, &by)
	case Signal, Wait:
		r.peer(&s, &by)
	case Loop:
		s.Times = r.int("times", 1, MaxSteps)
		return s
	}
	switch {
	case kind.Traits().Message() && r.acceptWord("chan"):
		s.Chan = r.int("channel", 0, maxRead)
	case kind.Traits().Flagged() && r.acceptWord("flag"):
		s.Chan = r.int("flag", 0, maxRead)
	}
	s.Final = r.acceptWord("final")
	if r.acceptWord("after") {
		r.dependences(&s, &by)
	}
	s.setBy(&by)
	return s
}

// setBy sets the Advance of s to by, without the lists that do not advance.
func (s *Step) setBy(by *Advance) {
	if !advances(by.Src) {
		by.Src = nil
	}
	if !advances(by.From) {
		by.From = nil
	}
	if !slices.ContainsFunc(by.After, func(n int) bool { return n != 0 }) {
		by.After = nil
	}
	if by.Dst != (Stride{}) || by.Peer != (Stride{}) || by.Src != nil || by.From != nil || by.After != nil {
		own := *by
		s.By = &own
	}
}

func advances(strides []Stride) bool {
	return slices.ContainsFunc(strides, func(s Stride) bool { return s != Stride{} })
}

func (r *reader) dst(s *Step, by *Advance) {
	s.Dst = r.ref(&by.Dst)
	r.expect("=")
}

func (r *reader) source(s *Step, by *Advance) {
	var stride Stride
	if len(s.Src) > 0 {
		r.list(r.at)
	}
	s.Src = append(s.Src, r.ref(&stride))
	if stride != (Stride{}) || by.Src != nil {
		by.Src = padded(by.Src, len(s.Src)-1, stride)
	}
}

// padded returns list, padded with zero strides to length n, with more appended.
func padded(list []Stride, n int, more Stride) []Stride {
	for len(list) < n {
		list = append(list, Stride{})
	}
	return append(list, more)
}

// sourceRank reads the rank of a source of getreduce; only sources in windows name one.
func (r *reader) sourceRank(s *Step, by *Advance) {
	r.skip()
	at := r.at
	marked := r.accept("@")
	if last := s.Src[len(s.Src)-1]; r.err == nil && marked != (last.Buf == Win) {
		r.fail(at, "sources in win, and only they, name their rank: win[0]@RANK")
		return
	}
	from, stride := r.rank, Stride{}
	if marked {
		from = r.int("rank", -maxRead, maxRead)
		stride = r.stride()
	}
	s.From = append(s.From, from)
	if stride != (Stride{}) || by.From != nil {
		by.From = padded(by.From, len(s.From)-1, stride)
	}
}

func (r *reader) peer(s *Step, by *Advance) {
	s.Peer = r.int("rank", -maxRead, maxRead)
	by.Peer = r.stride()
}

// ref reads BUFFER[FROM] or BUFFER[FROM:TO], either with a stride inside the brackets.
func (r *reader) ref(by *Stride) Ref {
	if r.err != nil {
		return Ref{}
	}
	r.skip()
	at := r.at
	var ref Ref
	switch r.word() {
	case "in":
		ref.Buf = In
	case "out":
		ref.Buf = Out
	case "tmp":
		ref.Buf = Tmp
	case "win":
		ref.Buf = Win
	default:
		r.at = at
		r.fail(at, "%s, want in[I], out[I], tmp[I] or win[I]", r.found())
		return ref
	}
	r.expect("[")
	ref.At, ref.N = r.int("chunk", -maxRead, maxRead), 1
	if r.accept(":") {
		r.skip()
		at := r.at
		to := r.int("chunk", -maxRead, maxRead)
		if ref.N = to - ref.At; ref.N < 0 {
			r.fail(at, "chunks %d to %d", ref.At, to)
		}
	}
	*by = r.stride()
	r.expect("]")
	return ref
}

// stride reads [by BY [in LOW:HIGH]].
func (r *reader) stride() Stride {
	if r.err != nil || !r.acceptWord("by") {
		return Stride{}
	}
	s := Stride{By: r.int("advance", -maxRead, maxRead)}
	if r.acceptWord("in") {
		s.Low = r.int("range", -maxRead, maxRead)
		r.expect(":")
		r.skip()
		at := r.at
		if s.Mod = r.int("range", -maxRead, maxRead) - s.Low; s.Mod <= 0 {
			r.fail(at, "the range is empty")
		}
	}
	return s
}

// dependences reads LANE.STEP [by BY]…
func (r *reader) dependences(s *Step, by *Advance) {
	for first := true; r.err == nil && (first || digit(r.peek())); first = false {
		a := Point{Lane: r.int("lane", 0, MaxLanes-1)}
		r.expect(".")
		a.Step = r.int("step", -maxRead, maxRead)
		r.list(r.at)
		s.After = append(s.After, a)
		n := 0
		if r.acceptWord("by") {
			n = r.int("advance", -maxRead, maxRead)
		}
		if n != 0 || by.After != nil {
			for len(by.After) < len(s.After)-1 {
				by.After = append(by.After, 0)
			}
			by.After = append(by.After, n)
		}
	}
}
