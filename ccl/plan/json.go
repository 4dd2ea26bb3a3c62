package plan

import "strconv"

// jsonFormat is the value of the field "format" of the JSON form. TextFormat is the version of this
// form too.
const jsonFormat = "goccl plan"

// JSON returns the plan in a form for tools, with one step per line; ParseJSON reads it back.
// PLAN.md lists the fields. JSON fails if Validate refuses the plan.
func (p *Plan) JSON() ([]byte, error) {
	w := jsonWriter{}
	w.str(`{"format":"` + jsonFormat + `","version":`)
	w.int(TextFormat)
	w.str(",\n" + `"name":"` + p.Name + `","collective":"` + p.Spec.Coll.String() + `"`)
	w.key("ranks", p.Spec.Ranks)
	if p.Spec.Coll.Rooted() {
		w.key("root", p.Spec.Root)
	}
	if levels := p.Spec.Shape.Levels(); levels > 0 {
		w.str(`,"shape":[`)
		w.list(levels, func(i int) { w.int(p.Spec.Shape[i]) })
		w.str("]")
	}
	w.key("split", p.Split)
	w.key("chans", p.Chans)
	w.key("flags", p.Flags)
	w.key("win", p.Win)
	w.names("needs", uint8(p.Needs), needNames)
	w.names("alias", uint8(p.Alias), aliasNames)
	if p.MinBytes != 0 || p.MaxBytes != 0 {
		w.str(`,"min_bytes":` + strconv.FormatInt(p.MinBytes, 10) + `,"max_bytes":` + strconv.FormatInt(p.MaxBytes, 10))
	}
	w.str(",\n" + `"programs":[`)
	if err := p.validateHead(); err != nil {
		return nil, err
	}
	for rank := range p.Spec.Ranks {
		prog := p.Program(rank)
		if err := p.ValidateProgram(rank, &prog); err != nil {
			return nil, err
		}
		if rank > 0 {
			w.str(",")
		}
		w.program(rank, &prog)
	}
	w.str("\n]}\n")
	return w.b, nil
}

type jsonWriter struct{ b []byte }

func (w *jsonWriter) str(s string) { w.b = append(w.b, s...) }
func (w *jsonWriter) int(n int)    { w.b = strconv.AppendInt(w.b, int64(n), 10) }

func (w *jsonWriter) key(name string, n int) {
	w.str(`,"` + name + `":`)
	w.int(n)
}

// nonzero writes a field that is omitted if it is 0.
func (w *jsonWriter) nonzero(name string, n int) {
	if n != 0 {
		w.key(name, n)
	}
}

func (w *jsonWriter) list(n int, element func(i int)) {
	for i := range n {
		if i > 0 {
			w.str(",")
		}
		element(i)
	}
}

func (w *jsonWriter) names(key string, set uint8, names []string) {
	w.str(`,"` + key + `":[`)
	words := setNames(set, names)
	w.list(len(words), func(i int) { w.str(`"` + words[i] + `"`) })
	w.str("]")
}

func (w *jsonWriter) program(rank int, prog *Program) {
	w.str("\n" + `{"rank":`)
	w.int(rank)
	w.lengths("tmp", prog.Tmp)
	w.lengths("win", prog.Win)
	w.str(`,"lanes":[`)
	for l, lane := range prog.Lanes {
		if l > 0 {
			w.str(",")
		}
		w.str("\n [")
		for i := range lane {
			if i > 0 {
				w.str(",")
			}
			w.str("\n  ")
			w.step(&lane[i])
		}
		w.str("]")
	}
	w.str("]}")
}

func (w *jsonWriter) lengths(name string, list []Extent) {
	if len(list) == 0 {
		return
	}
	runs := compress(list)
	pair := func(key string, n [2]int) {
		w.str(`"` + key + `":[`)
		w.list(2, func(i int) { w.int(n[i]) })
		w.str("]")
	}
	w.str(`,"` + name + `":[`)
	w.list(len(runs), func(i int) {
		r := &runs[i]
		w.str("{")
		if r.block {
			pair("block", r.To)
		} else {
			pair("from", r.From)
			w.str(",")
			pair("to", r.To)
		}
		w.str(",")
		pair("part", r.Part)
		if r.times != 1 {
			w.key("times", r.times)
		}
		w.str("}")
	})
	w.str("]")
}

func (w *jsonWriter) step(s *Step) {
	uses := s.Kind.Traits()
	w.str(`{"kind":"` + s.Kind.String() + `"`)
	if uses.Writes {
		w.str(`,"dst":`)
		w.ref(s.Dst)
	}
	if uses.Reads {
		w.str(`,"src":[`)
		w.list(len(s.Src), func(i int) { w.ref(s.Src[i]) })
		w.str("]")
	}
	if len(s.From) > 0 {
		w.str(`,"from":[`)
		w.list(len(s.From), func(i int) { w.int(s.From[i]) })
		w.str("]")
	}
	if uses.Peer {
		w.key("peer", s.Peer)
	}
	w.nonzero("chan", s.Chan)
	if s.MsgFirst {
		w.str(`,"msg_first":true`)
	}
	if s.Final {
		w.str(`,"final":true`)
	}
	if len(s.After) > 0 {
		w.str(`,"after":[`)
		w.list(len(s.After), func(i int) {
			w.str("[")
			w.int(s.After[i].Lane)
			w.str(",")
			w.int(s.After[i].Step)
			w.str("]")
		})
		w.str("]")
	}
	if s.By != nil {
		w.advance(s.By)
	}
	if s.Kind == Loop {
		w.key("times", s.Times)
		w.str(`,"body":[`)
		w.list(len(s.Body), func(i int) {
			w.str("\n    ")
			w.step(&s.Body[i])
		})
		w.str("]")
	}
	w.str("}")
}

func (w *jsonWriter) ref(r Ref) {
	w.str(`{"buf":"` + r.Buf.String() + `"`)
	w.key("at", r.At)
	if r.N != 1 {
		w.key("n", r.N)
	}
	w.str("}")
}

func (w *jsonWriter) advance(by *Advance) {
	first := true
	field := func(name string, write func()) {
		if !first {
			w.str(",")
		}
		first = false
		w.str(`"` + name + `":`)
		write()
	}
	strides := func(name string, list []Stride) {
		if advances(list) {
			field(name, func() {
				w.str("[")
				w.list(len(list), func(i int) { w.stride(list[i]) })
				w.str("]")
			})
		}
	}
	w.str(`,"by":{`)
	if by.Dst != (Stride{}) {
		field("dst", func() { w.stride(by.Dst) })
	}
	strides("src", by.Src)
	strides("from", by.From)
	if by.Peer != (Stride{}) {
		field("peer", func() { w.stride(by.Peer) })
	}
	if len(by.After) > 0 {
		field("after", func() {
			w.str("[")
			w.list(len(by.After), func(i int) { w.int(by.After[i]) })
			w.str("]")
		})
	}
	w.str("}")
}

func (w *jsonWriter) stride(s Stride) {
	w.str(`{"by":`)
	w.int(s.By)
	if s.Mod != 0 {
		w.key("low", s.Low)
		w.key("mod", s.Mod)
	}
	w.str("}")
}
