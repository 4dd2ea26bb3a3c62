package plan

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// Limits on plans from files and on the duration of a check.
const (
	MaxFileSize = 32 << 20 // bytes
	// MaxChecks bounds the steps (loops unrolled) and chunk lengths that the check of one program,
	// or of one file, visits.
	MaxChecks = 1 << 27

	// Steps of all ranks, loops unrolled: code that verifies or runs the plan holds them in memory.
	maxFileSteps = 1 << 24

	// Steps, operands of steps and runs of lengths that a file may list: the plan in memory holds
	// each of them, in up to 400 bytes.
	maxListed = 1 << 18
)

// Load reads a plan in either form: JSON if the first character is '{', text otherwise. Validate
// accepts all programs of the plan that Load returns; package verify checks what the programs do
// together.
func Load(data []byte) (*Plan, error) {
	if rest := bytes.TrimLeft(data, " \t\r\n"); len(rest) > 0 && rest[0] == '{' {
		return ParseJSON(data)
	}
	return Parse(data)
}

// file is a plan that is being read.
type file struct {
	data     []byte
	err      error // the first error; reading stops at it
	plan     Plan
	programs map[int]*fileProgram
	budget   int
	unrolled int // steps of the programs read so far
	listed   int // what maxListed bounds

	// State of the program that is being read.
	program *fileProgram
	places  places
	chunks  [numBuffers]int // of tmp and win so far
	steps   int             // so far, each step of a loop once
	// Steps of the lane that is being read, if reading is set; the next lane reuses the memory.
	items   []Step
	reading bool
}

// fileProgram is a program as the file has it, with loops and lists of lengths in their short
// forms.
type fileProgram struct {
	tmp, win []extentRun
	lanes    [][]Step
}

// places are offsets into the data.
type places struct {
	rank, tmp, win int
	items          [][]int32      // of each step and each loop of each lane
	bodies         map[[2]int]int // index in body of the first step of a loop's body, by lane and item
	body           []int32
}

// number returns the field of the head that holds one number, with its minimum and maximum. The
// field is nil if the key is unknown or of another kind.
func (p *Plan) number(key string) (field *int, low, high int) {
	switch key {
	case "ranks":
		return &p.Spec.Ranks, 1, MaxRanks
	case "root":
		return &p.Spec.Root, 0, MaxRanks - 1
	case "split":
		return &p.Split, 1, MaxSplit
	case "chans":
		return &p.Chans, 0, MaxChans
	case "flags":
		return &p.Flags, 0, MaxFlags
	case "win":
		return &p.Win, 0, MaxWin
	}
	return nil, 0, 0
}

func newFile(data []byte) *file {
	f := &file{data: data, programs: map[int]*fileProgram{}, budget: MaxChecks}
	f.plan.Program = f.expanded
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(data, []byte(mark)) {
			f.fail(0, "it begins with a byte order mark; save it as UTF-8 without one")
		}
	}
	if len(data) > MaxFileSize {
		f.fail(0, "the file is too large; a plan has at most %d bytes", MaxFileSize)
	}
	return f
}

// fail records an error at an offset, unless there is one already.
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

// number checks that n is between lo and hi.
func (f *file) number(at int, what string, n, lo, hi int64) int64 {
	if n < lo || n > hi {
		f.fail(at, "%s %d, want %d to %d", what, n, lo, hi)
		return lo
	}
	return n
}

// maxRead bounds the numbers of a file, so that sums of a few of them do not overflow. Their valid
// ranges are checked later.
const maxRead = 1 << 40

// headRead checks the head, which begins at offset at.
func (f *file) headRead(at int) {
	if f.err != nil {
		return
	}
	if err := f.plan.Spec.Validate(); err != nil {
		f.fail(at, "%s", strings.TrimPrefix(err.Error(), "plan: "))
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
	f.chunks, f.steps, f.reading = [numBuffers]int{}, 0, false
	f.places = places{rank: at, tmp: at, win: at, items: f.places.items[:0], body: f.places.body[:0]}
}

// addRun adds a run to the list of lengths of buf.
func (f *file) addRun(buf Buffer, r extentRun, at int) {
	if f.err != nil {
		return
	}
	list, most := &f.program.tmp, MaxTmp
	if buf == Win {
		list, most = &f.program.win, MaxWin
	}
	f.list(at)
	n := r.len(most)
	if n < 0 || n > most-f.chunks[buf] {
		f.fail(at, "with these %v has more than %d chunks", buf, most)
		return
	}
	f.chunks[buf] += n
	*list = append(*list, r)
}

// beginLane begins the next lane.
func (f *file) beginLane(at int) {
	if f.err != nil {
		return
	}
	f.endLane()
	if len(f.program.lanes) == MaxLanes {
		f.fail(at, "a rank has at most %d lanes", MaxLanes)
		return
	}
	f.items, f.reading = f.items[:0], true
	f.places.items = append(f.places.items, nil)
}

// endLane ends the lane that is being read, if there is one.
func (f *file) endLane() {
	if f.reading {
		f.program.lanes = append(f.program.lanes, append([]Step(nil), f.items...))
		f.reading = false
	}
}

// addStep adds a step to the lane.
func (f *file) addStep(s *Step, at int) {
	if f.err != nil {
		return
	}
	l := len(f.program.lanes)
	f.items = append(f.items, *s)
	f.places.items[l] = append(f.places.items[l], int32(at))
	if s.Kind != Loop {
		f.countStep(at)
		return
	}
	if f.places.bodies == nil {
		f.places.bodies = map[[2]int]int{}
	}
	f.places.bodies[[2]int{l, len(f.items) - 1}] = len(f.places.body)
}

// addBody adds a step to the body of the most recently added loop.
func (f *file) addBody(s *Step, at int) {
	if f.err != nil {
		return
	}
	f.countStep(at)
	loop := &f.items[len(f.items)-1]
	loop.Body = append(loop.Body, *s)
	f.places.body = append(f.places.body, int32(at))
}

// list counts something that the file lists.
func (f *file) list(at int) {
	if f.listed++; f.listed > maxListed {
		f.fail(at, "the file lists more than %d steps, operands and lengths; loops and N/M*COUNT say it shorter", maxListed)
	}
}

func (f *file) countStep(at int) {
	f.list(at)
	if f.steps++; f.steps > MaxSteps {
		f.fail(at, "a rank has at most %d steps", MaxSteps)
	}
}

// endRank checks the program that is being read, if there is one.
func (f *file) endRank(rank int) {
	if f.err != nil || f.program == nil {
		return
	}
	f.endLane()
	if n := f.chunks[Tmp] + f.chunks[Win]; n > f.budget {
		f.fail(f.places.rank, "rank %d: %s", rank, tooMuch)
		return
	}
	prog := f.expanded(rank)
	if wrong := f.plan.check(rank, &prog, &f.budget); wrong != nil {
		f.fail(f.place(wrong), "%s", wrong.text)
	}
	for _, lane := range prog.Lanes {
		f.unrolled += Len(lane)
	}
	if f.unrolled > maxFileSteps {
		f.fail(f.places.rank, "with rank %d the plan has more than %d steps, loops unrolled", rank, maxFileSteps)
	}
	f.program = nil
}

// place returns the offset of a problem.
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

// expanded returns the program of a rank with its lists of lengths expanded.
func (f *file) expanded(rank int) Program {
	written := f.programs[rank]
	if written == nil {
		return Program{}
	}
	prog := Program{Lanes: written.lanes}
	prog.Tmp, prog.Win = expand(written.tmp), expand(written.win)
	return prog
}

// finish returns the plan after the whole file was read, or the first error.
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
	programs := file{programs: f.programs} // without the data
	p.Program = programs.expanded
	return &p, nil
}
