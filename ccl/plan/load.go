package plan

import (
	"bytes"
	"fmt"

	"github.com/goccl/goccl/ccl/fault"
)

// Limits on plans from files, and on how long a check takes.
const (
	MaxFileSize = 32 << 20 // bytes
	MaxChecks   = 1 << 27  // steps (loops unrolled) and chunk lengths that the check of one program, or of one file, looks at
)

// Load reads a plan in either form: JSON if the first character is '{', text otherwise. Validate accepts all its programs; what they do
// together is for package verify to check.
func Load(data []byte) (*Plan, error) {
	if rest := bytes.TrimLeft(data, " \t\r\n"); len(rest) > 0 && rest[0] == '{' {
		return ParseJSON(data)
	}
	return Parse(data)
}

// file is a plan that is being read.
type file struct {
	data     []byte
	err      error // the first one; nothing more is read
	plan     Plan
	programs map[int]*fileProgram
	budget   int

	// of the program that is being read
	program *fileProgram
	places  places
}

// fileProgram is a program as it was written, loops and lists of lengths in short.
type fileProgram struct {
	tmp, win []extentRun
	lanes    [][]Step
}

// places are offsets into the data.
type places struct {
	rank, tmp, win int
	items          [][]int32      // of each item of each lane
	bodies         map[[2]int]int // of the first step of a loop's body in body, by lane and item
	body           []int32
}

func newFile(data []byte) *file {
	f := &file{data: data, programs: map[int]*fileProgram{}, budget: MaxChecks}
	f.plan.Program = f.expanded
	if len(data) > MaxFileSize {
		f.err = fault.New(fault.Invalid, "plan: %d bytes, at most %d", len(data), MaxFileSize)
	}
	return f
}

// fail records what is wrong at an offset.
func (f *file) fail(offset int, format string, args ...any) {
	if f.err != nil {
		return
	}
	offset = min(offset, len(f.data))
	before := f.data[:offset]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := offset - (bytes.LastIndexByte(before, '\n') + 1) + 1
	f.err = fault.New(fault.Invalid, "plan:%d:%d: %s", line, column, fmt.Sprintf(format, args...))
}

// number accepts n between lo and hi.
func (f *file) number(at int, what string, n, lo, hi int64) int64 {
	if n < lo || n > hi {
		f.fail(at, "%s %d, want %d to %d", what, n, lo, hi)
		return lo
	}
	return n
}

// maxRead bounds the numbers of a file, so that sums of a few do not overflow. What they may be is checked later.
const maxRead = 1 << 40

// headRead checks the head, which is written at an offset.
func (f *file) headRead(at int) {
	if f.err != nil {
		return
	}
	if err := f.plan.Spec.Validate(); err != nil {
		f.fail(at, "%v", err)
	} else if wrong := f.plan.checkHead(); wrong != "" {
		f.fail(at, "%s", wrong)
	}
}

// beginRank begins the program of a rank.
func (f *file) beginRank(rank, at int) {
	if f.programs[rank] != nil {
		f.fail(at, "rank %d is listed twice", rank)
	}
	if f.err != nil {
		return
	}
	f.program = &fileProgram{}
	f.programs[rank] = f.program
	f.places = places{rank: at, tmp: at, win: at, items: f.places.items[:0], body: f.places.body[:0]}
}

// addRun adds to a list of lengths.
func (f *file) addRun(buf Buffer, r extentRun, at int) {
	if f.err != nil {
		return
	}
	list, most := &f.program.tmp, MaxTmp
	if buf == Win {
		list, most = &f.program.win, MaxWin
	}
	n := r.len(most)
	if n < 0 {
		f.fail(at, "these are more than %d chunks", most)
		return
	}
	*list = append(*list, r)
}

// beginLane begins the next lane.
func (f *file) beginLane(at int) {
	if f.err != nil {
		return
	}
	if len(f.program.lanes) == MaxLanes {
		f.fail(at, "a rank has at most %d lanes", MaxLanes)
		return
	}
	f.program.lanes = append(f.program.lanes, nil)
	f.places.items = append(f.places.items, nil)
}

// addStep adds a step to the lane.
func (f *file) addStep(s *Step, at int) {
	if f.err != nil {
		return
	}
	l := len(f.program.lanes) - 1
	if len(f.program.lanes[l]) == MaxSteps {
		f.fail(at, "a rank has at most %d steps", MaxSteps)
		return
	}
	f.program.lanes[l] = append(f.program.lanes[l], *s)
	f.places.items[l] = append(f.places.items[l], int32(at))
	if s.Kind == Loop {
		if f.places.bodies == nil {
			f.places.bodies = map[[2]int]int{}
		}
		f.places.bodies[[2]int{l, len(f.program.lanes[l]) - 1}] = len(f.places.body)
	}
}

// addBody adds a step to the loop that was added last.
func (f *file) addBody(s *Step, at int) {
	if f.err != nil {
		return
	}
	lane := f.program.lanes[len(f.program.lanes)-1]
	loop := &lane[len(lane)-1]
	loop.Body = append(loop.Body, *s)
	f.places.body = append(f.places.body, int32(at))
}

// endRank checks the program that was begun.
func (f *file) endRank(rank int) {
	if f.err != nil || f.program == nil {
		return
	}
	for _, list := range []struct {
		runs []extentRun
		most int
		at   int
	}{{f.program.tmp, MaxTmp, f.places.tmp}, {f.program.win, MaxWin, f.places.win}} {
		total := 0
		for i := range list.runs {
			if total += list.runs[i].len(list.most); total > list.most {
				f.fail(list.at, "rank %d: more than %d chunks", rank, list.most)
				return
			}
		}
		if total > f.budget {
			f.fail(list.at, "rank %d: %s", rank, tooMuch)
			return
		}
	}
	prog := f.expanded(rank)
	if wrong := f.plan.check(rank, &prog, &f.budget); wrong != nil {
		f.fail(f.place(wrong), "%s", wrong.text)
	}
	f.program = nil
}

// place is where a problem is.
func (f *file) place(w *problem) int {
	switch {
	case w.list == Tmp:
		return f.places.tmp
	case w.list == Win:
		return f.places.win
	case w.lane < 0:
		return f.places.rank
	case w.body >= 0:
		return int(f.places.body[f.places.bodies[[2]int{w.lane, w.item}]+w.body])
	}
	return int(f.places.items[w.lane][w.item])
}

// expanded is the program of a rank.
func (f *file) expanded(rank int) Program {
	written := f.programs[rank]
	if written == nil {
		return Program{}
	}
	prog := Program{Lanes: written.lanes}
	for i := range written.tmp {
		prog.Tmp = written.tmp[i].expand(prog.Tmp)
	}
	for i := range written.win {
		prog.Win = written.win[i].expand(prog.Win)
	}
	return prog
}

// finish is the plan that was read to its end.
func (f *file) finish() (*Plan, error) {
	if f.err == nil && len(f.programs) < f.plan.Spec.Ranks {
		rank := 0
		for f.programs[rank] != nil {
			rank++
		}
		f.fail(len(f.data), "rank %d is missing; a rank that does nothing is listed without lanes", rank)
	}
	if f.err != nil {
		return nil, f.err
	}
	p := f.plan
	programs := file{programs: f.programs} // not the data
	p.Program = programs.expanded
	return &p, nil
}
