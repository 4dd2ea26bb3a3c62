package plan

import (
	"math"
	"unicode/utf8"

	"github.com/goccl/goccl/ccl/dtype"
)

// ParseJSON reads the form that JSON writes. Unknown fields and duplicate fields are refused;
// "programs" must be the last field. An error is "plan:LINE:COLUMN: reason", a fault.Invalid.
// Validate accepts all programs of the plan that ParseJSON returns.
func ParseJSON(data []byte) (*Plan, error) {
	r := jsonReader{file: newFile(data)}
	if r.err == nil && !utf8.Valid(data) {
		r.fail(invalidUTF8(data), "it is not UTF-8")
	}
	if r.err == nil {
		r.top()
	}
	return r.finish()
}

func (r *jsonReader) int(what string, lo, hi int) int {
	return int(r.integer(what, int64(lo), int64(hi)))
}

// pair reads [FIRST, LAST].
func (r *jsonReader) pair(what string) [2]int {
	var n [2]int
	at := r.here()
	count := 0
	r.array(what, func(i int) {
		if count++; count > 2 {
			r.fail(at, "%s: want two numbers, the first and the last", what)
			return
		}
		n[i] = r.int(what, 0, math.MaxInt32)
	})
	if count < 2 {
		r.fail(at, "%s: want two numbers, the first and the last", what)
	}
	return n
}

func (r *jsonReader) names(what string, names []string) uint8 {
	set := uint8(0)
	r.array(what, func(int) {
		at := r.here()
		bit := parseName(r.text(what), names)
		if r.err == nil && (bit == 0 || set&bit != 0) {
			r.fail(at, "%s: want some of %v", what, names)
		}
		set |= bit
	})
	return set
}

// top reads the whole file.
func (r *jsonReader) top() {
	p := &r.plan
	p.Split, p.Chans = 1, 1
	start := r.here()
	version, last, ranks := 0, false, false
	r.object("plan", func(key string, at int) bool {
		if last {
			r.fail(at, "\"programs\" must be the last field")
		}
		switch key {
		case "format":
			if s := r.text(key); r.err == nil && s != jsonFormat {
				r.fail(at, "format %.100q, want %q", s, jsonFormat)
			}
		case "version":
			if version = r.int(key, 0, maxRead); r.err == nil && version != TextFormat {
				r.fail(at, "version %d, this version of goccl reads %d", version, TextFormat)
			}
		case "programs":
			switch last = true; {
			case version == 0:
				r.fail(at, "\"version\" is missing")
			case !ranks:
				r.fail(at, "\"ranks\" is missing")
			}
			r.headRead(start)
			r.array(key, func(int) { r.readProgram() })
		case "ranks":
			ranks = true
			return r.field(key, at)
		default:
			return r.field(key, at)
		}
		return true
	})
	switch {
	case r.err != nil:
	case !last:
		r.fail(len(r.data), "\"programs\" is missing")
	default:
		if at := r.here(); at < len(r.data) {
			r.fail(at, "something follows the plan")
		}
	}
}

// field reads a field of the head and reports whether there is such a field.
func (r *jsonReader) field(key string, at int) bool {
	p := &r.plan
	if number, low, high := p.number(key); number != nil {
		*number = r.int(key, low, high)
		return true
	}
	switch key {
	case "name":
		p.Name = r.text(key)
	case "collective":
		coll, err := dtype.ParseCollective(r.text(key))
		if err != nil {
			r.fail(at, "want a collective; known: %v", dtype.Collectives())
		}
		p.Spec.Coll = coll
	case "shape":
		r.array(key, func(i int) {
			n := r.int(key, 1, MaxRanks)
			if i >= MaxLevels {
				r.fail(at, "a shape has at most %d levels", MaxLevels)
				return
			}
			p.Spec.Shape[i] = n
		})
	case "needs":
		p.Needs = Need(r.names(key, needNames))
	case "alias":
		p.Alias = Alias(r.names(key, aliasNames))
	case "min_bytes":
		p.MinBytes = r.integer(key, 0, math.MaxInt64)
	case "max_bytes":
		p.MaxBytes = r.integer(key, 0, math.MaxInt64)
	default:
		return false
	}
	return true
}

// readProgram reads the program of a rank; "rank" comes first.
func (r *jsonReader) readProgram() {
	start := r.here()
	begun := false
	r.object("program", func(key string, at int) bool {
		if key == "rank" {
			r.rank = r.int(key, 0, r.plan.Spec.Ranks-1)
			r.beginRank(r.rank, at)
			begun = true
			return true
		}
		if !begun {
			r.fail(start, "program: \"rank\" must be its first field")
			return true
		}
		switch key {
		case "tmp":
			r.places.tmp = at
			r.array(key, func(int) { r.run(Tmp) })
		case "win":
			r.places.win = at
			r.array(key, func(int) { r.run(Win) })
		case "lanes":
			r.array(key, func(int) {
				r.beginLane(r.here())
				r.array("lane", func(int) {
					at := r.here()
					s, places := r.step(false)
					r.addStep(&s, at)
					if r.err != nil {
						return
					}
					r.places.body = append(r.places.body, places...)
					if r.steps += len(s.Body); r.steps > MaxSteps {
						r.fail(at, "a rank has at most %d steps", MaxSteps)
					}
				})
			})
		default:
			return false
		}
		return true
	})
	if r.err == nil && !begun {
		r.fail(start, "program: \"rank\" must be its first field")
	}
	r.endRank(r.rank)
}

// run reads one run of chunk lengths.
func (r *jsonReader) run(buf Buffer) {
	start := r.here()
	run := extentRun{times: 1}
	seen := map[string]bool{}
	r.object("lengths", func(key string, at int) bool {
		seen[key] = true
		switch key {
		case "block":
			run.block = true
			run.To = r.pair(key)
			run.From = run.To
		case "from":
			run.From = r.pair(key)
		case "to":
			run.To = r.pair(key)
		case "part":
			run.Part = r.pair(key)
		case "times":
			run.times = r.int(key, 1, MaxTmp)
		default:
			return false
		}
		return true
	})
	if r.err == nil && (!seen["part"] || seen["block"] == seen["from"] || seen["from"] != seen["to"]) {
		r.fail(start, "lengths: want \"part\", and \"block\" or \"from\" and \"to\"")
	}
	r.addRun(buf, run, start)
}

// step reads a step, and returns with it the offsets of the steps of its body.
func (r *jsonReader) step(inBody bool) (Step, []int32) {
	start := r.here()
	var s Step
	var places []int32
	kind := false
	r.object("step", func(key string, at int) bool {
		switch key {
		case "kind":
			s.Kind, kind = parseKind(r.text(key))
			if !kind {
				r.fail(at, "kind: want one of %v", kindNames())
			}
		case "dst":
			s.Dst = r.ref(key)
		case "src":
			r.array(key, func(i int) { s.Src = append(s.Src, r.ref(key)); r.item(i) })
		case "from":
			r.array(key, func(i int) { s.From = append(s.From, r.int(key, -maxRead, maxRead)); r.item(i) })
		case "peer":
			s.Peer = r.int(key, -maxRead, maxRead)
		case "chan":
			s.Chan = r.int(key, 0, maxRead)
		case "msg_first":
			s.MsgFirst = r.bool(key)
		case "final":
			s.Final = r.bool(key)
		case "after":
			r.array(key, func(i int) { s.After = append(s.After, r.point()); r.item(i + 1) })
		case "by":
			var by Advance
			r.advance(&by)
			s.setBy(&by)
		case "times":
			s.Times = r.int(key, 1, MaxSteps)
		case "body":
			if inBody {
				r.fail(start, "loops are not nested")
				return true
			}
			r.array(key, func(int) {
				at := r.here()
				t, _ := r.step(true)
				if len(s.Body) == MaxSteps {
					r.fail(at, "a rank has at most %d steps", MaxSteps)
					return
				}
				s.Body = append(s.Body, t)
				places = append(places, int32(at))
			})
		default:
			return false
		}
		return true
	})
	if r.err == nil && !kind {
		r.fail(start, "step: \"kind\" is missing")
	}
	switch {
	case s.Kind == Loop && inBody:
		r.fail(start, "loops are not nested")
	case s.Kind == Loop && len(s.Body) == 0:
		r.fail(start, "a loop without steps")
	}
	return s, places
}

func (r *jsonReader) ref(what string) Ref {
	start := r.here()
	ref := Ref{N: 1}
	named := false
	r.object(what, func(key string, at int) bool {
		switch key {
		case "buf":
			name := r.text(key)
			for b := In; b < numBuffers; b++ {
				if b.String() == name {
					ref.Buf, named = b, true
				}
			}
			if !named {
				r.fail(at, "buf: want in, out, tmp or win")
			}
		case "at":
			ref.At = r.int(key, -maxRead, maxRead)
		case "n":
			ref.N = r.int(key, 0, maxRead)
		default:
			return false
		}
		return true
	})
	if r.err == nil && !named {
		r.fail(start, "%s: \"buf\" is missing", what)
	}
	return ref
}

func (r *jsonReader) point() Point {
	var n [2]int
	at := r.here()
	count := 0
	r.array("after", func(i int) {
		if count++; count > 2 {
			r.fail(at, "after: want [LANE, STEP]")
			return
		}
		n[i] = r.int("after", -maxRead, maxRead)
	})
	if count < 2 {
		r.fail(at, "after: want [LANE, STEP]")
	}
	return Point{n[0], n[1]}
}

func (r *jsonReader) advance(by *Advance) {
	r.object("by", func(key string, at int) bool {
		switch key {
		case "dst":
			by.Dst = r.stride()
		case "src":
			r.array(key, func(i int) { by.Src = append(by.Src, r.stride()); r.item(i) })
		case "from":
			r.array(key, func(i int) { by.From = append(by.From, r.stride()); r.item(i) })
		case "peer":
			by.Peer = r.stride()
		case "after":
			r.array(key, func(i int) { by.After = append(by.After, r.int(key, -maxRead, maxRead)); r.item(i) })
		default:
			return false
		}
		return true
	})
}

func (r *jsonReader) stride() Stride {
	var s Stride
	r.object("advance", func(key string, at int) bool {
		switch key {
		case "by":
			s.By = r.int(key, -maxRead, maxRead)
		case "low":
			s.Low = r.int(key, -maxRead, maxRead)
		case "mod":
			s.Mod = r.int(key, 0, maxRead)
		default:
			return false
		}
		return true
	})
	return s
}
