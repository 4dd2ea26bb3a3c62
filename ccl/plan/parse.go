package plan

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/goccl/goccl/ccl/dtype"
)

// Parse reads the form that Text writes for all ranks. It also accepts comments (from '#' to the
// end of the line), blank lines, any indentation (only the body of a loop must be indented deeper
// than the loop), ranks in any order, and steps without their numbers. Every rank must be listed.
// An error is "plan:LINE:COLUMN: reason", a fault.Invalid. Validate accepts all programs of the
// plan that Parse returns.
func Parse(text []byte) (*Plan, error) {
	r := reader{file: newFile(text)}
	if r.err == nil {
		r.read()
	}
	return r.finish()
}

// reader reads the text form line by line.
type reader struct {
	*file
	start    int // offset of the line
	at       int // offset of the next character
	end      int // offset of the end of the line, without its comment
	nextLine int

	rank   int // rank whose program is being read
	inLane bool
	step   int // number of the next step, unrolled

	loopAt    int // indentation of the loop whose body is being read, or -1
	loopPlace int // its offset
	loopFrom  int // number of the first step of its body
}

// line advances to the next line that is neither blank nor only a comment.
func (r *reader) line() bool {
	for r.err == nil && r.nextLine < len(r.data) {
		r.start, r.at = r.nextLine, r.nextLine
		r.end = len(r.data)
		r.nextLine = r.end
		if i := bytes.IndexByte(r.data[r.start:], '\n'); i >= 0 {
			r.end = r.start + i
			r.nextLine = r.end + 1
		}
		if r.end > r.start && r.data[r.end-1] == '\r' {
			r.end--
		}
		if i := bytes.IndexByte(r.data[r.start:r.end], '#'); i >= 0 {
			r.end = r.start + i
		}
		if r.skip(); r.at < r.end {
			return true
		}
	}
	return false
}

func (r *reader) skip() {
	for r.at < r.end && (r.data[r.at] == ' ' || r.data[r.at] == '\t') {
		r.at++
	}
}

// peek returns the next character after spaces, or 0 at the end of the line.
func (r *reader) peek() byte {
	r.skip()
	if r.at == r.end {
		return 0
	}
	return r.data[r.at]
}

// accept consumes mark if it comes next.
func (r *reader) accept(mark string) bool {
	r.skip()
	if !bytes.HasPrefix(r.data[r.at:r.end], []byte(mark)) {
		return false
	}
	r.at += len(mark)
	return true
}

// expect consumes mark, which must come next.
func (r *reader) expect(mark string) {
	if r.err == nil && !r.accept(mark) {
		r.fail(r.at, "%s, want %q", r.found(), mark)
	}
}

// found describes what comes next.
func (r *reader) found() string {
	r.skip()
	if r.at == r.end {
		return "the line ends"
	}
	rest := r.data[r.at:r.end]
	_, n := utf8.DecodeRune(rest)
	for n < len(rest) && n < 20 && letter(rest[0]) && letter(rest[n]) {
		n++
	}
	return "found " + strconv.QuoteToASCII(string(rest[:n]))
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// word reads letters and underscores; it returns "" if there are none.
func (r *reader) word() string {
	r.skip()
	from := r.at
	for r.at < r.end && letter(r.data[r.at]) {
		r.at++
	}
	return string(r.data[from:r.at])
}

// acceptWord consumes a word if it comes next.
func (r *reader) acceptWord(word string) bool {
	r.skip()
	from := r.at
	if r.word() == word {
		return true
	}
	r.at = from
	return false
}

func (r *reader) expectWord(word string) {
	if r.err == nil && !r.acceptWord(word) {
		r.fail(r.at, "%s, want %q", r.found(), word)
	}
}

// integer reads a number between lo and hi.
func (r *reader) integer(what string, lo, hi int64) int64 {
	if r.err != nil {
		return lo
	}
	r.skip()
	from := r.at
	negative := r.at < r.end && r.data[r.at] == '-'
	if negative {
		r.at++
	}
	if r.at == r.end || !digit(r.data[r.at]) {
		r.at = from
		r.fail(from, "%s, want a number: %s", r.found(), what)
		return lo
	}
	n := int64(0)
	for ; r.at < r.end && digit(r.data[r.at]); r.at++ {
		d := int64(r.data[r.at] - '0')
		if n > (math.MaxInt64-d)/10 {
			r.fail(from, "%s: the number is too large", what)
			return lo
		}
		n = 10*n + d
	}
	if negative {
		n = -n
	}
	return r.number(from, what, n, lo, hi)
}

func (r *reader) int(what string, lo, hi int) int { return int(r.integer(what, int64(lo), int64(hi))) }

// endLine checks that the line ends here.
func (r *reader) endLine() {
	if r.err == nil && r.peek() != 0 {
		r.fail(r.at, "%s, want the end of the line", r.found())
	}
}

func (r *reader) read() {
	if !r.line() {
		r.fail(0, "it is empty; a plan begins with \"goccl plan format %d\"", TextFormat)
		return
	}
	at := r.at
	if !r.acceptWord("goccl") || !r.acceptWord("plan") || !r.acceptWord("format") {
		r.fail(at, "this is no plan; it would begin with \"goccl plan format %d\"", TextFormat)
	}
	r.skip()
	at = r.at
	if version := r.int("format", 0, maxRead); version != TextFormat {
		r.fail(at, "format %d, this version of goccl reads %d", version, TextFormat)
	}
	r.endLine()
	if r.err == nil && !r.line() {
		r.fail(len(r.data), "the line \"plan NAME COLLECTIVE ranks=N ...\" is missing")
		return
	}
	r.head()
	r.programs()
}

// head reads the line that begins with "plan".
func (r *reader) head() {
	if r.err != nil {
		return
	}
	start := r.at
	r.expectWord("plan")
	r.skip()
	from := r.at
	for r.at < r.end && r.data[r.at] > ' ' {
		r.at++
	}
	p := &r.plan
	p.Name = string(r.data[from:r.at])
	if r.err == nil && !validName(p.Name) {
		r.fail(from, "the name must be letters, digits, '_', '-' and '.', at most %d of them", maxName)
	}
	r.skip()
	from = r.at
	if coll, err := dtype.ParseCollective(r.word()); err == nil {
		p.Spec.Coll = coll
	} else {
		r.fail(from, "want a collective; known: %v", dtype.Collectives())
	}
	p.Split, p.Chans = 1, 1
	seen := map[string]bool{}
	for r.err == nil && r.peek() != 0 {
		from := r.at
		key := r.word()
		if seen[key] {
			r.fail(from, "%s= is given twice", key)
		}
		seen[key] = true
		if !r.field(key) {
			r.at = from
			r.fail(from, "%s, want one of ranks= root= shape= split= chans= flags= win= needs= alias= bytes=",
				r.found())
		}
	}
	if r.err == nil && !seen["ranks"] {
		r.fail(r.at, "ranks= is missing")
	}
	r.headRead(start)
}

// field reads the value of a key, and reports whether there is such a key.
func (r *reader) field(key string) bool {
	p := &r.plan
	number, low, high := p.number(key)
	if number != nil || key == "shape" || key == "needs" || key == "alias" || key == "bytes" {
		r.expect("=")
	}
	if number != nil {
		*number = r.int(key, low, high)
		return true
	}
	switch key {
	case "shape":
		for i := range p.Spec.Shape {
			if i > 0 && !r.accept("x") {
				break
			}
			p.Spec.Shape[i] = r.int(key, 1, MaxRanks)
		}
		if p.Spec.Shape[MaxLevels-1] != 0 && r.accept("x") {
			r.fail(r.at-1, "a shape has at most %d levels", MaxLevels)
		}
	case "needs":
		p.Needs = Need(r.set(key, needNames))
	case "alias":
		p.Alias = Alias(r.set(key, aliasNames))
	case "bytes":
		p.MinBytes = r.integer(key, 0, math.MaxInt64)
		r.expect("..")
		if digit(r.peek()) {
			p.MaxBytes = r.integer(key, 1, math.MaxInt64)
		}
	default:
		return false
	}
	return true
}

// set reads "none", or names joined by '+'.
func (r *reader) set(what string, names []string) uint8 {
	if r.acceptWord("none") {
		return 0
	}
	set := uint8(0)
	for {
		r.skip()
		from := r.at
		bit := parseName(r.word(), names)
		if bit == 0 || set&bit != 0 {
			r.fail(from, "%s: want none, or some of %v joined by '+'", what, names)
			return set
		}
		set |= bit
		if !r.accept("+") {
			return set
		}
	}
}

// programs reads the programs of all ranks.
func (r *reader) programs() {
	r.rank, r.loopAt = -1, -1
	for r.line() {
		start := r.at
		if digit(r.data[r.at]) {
			r.stepLine()
			continue
		}
		switch word := r.word(); word {
		case "rank":
			r.endBody()
			r.endRank(r.rank)
			r.rank, r.inLane = r.int("rank", 0, r.plan.Spec.Ranks-1), false
			r.beginRank(r.rank, start)
			r.endLine()
		case "tmp", "win":
			r.lengths(word, start)
		case "lane":
			r.endBody()
			r.lane(start)
		default:
			r.at = start
			r.stepLine()
		}
	}
	r.endBody()
	r.endRank(r.rank)
}

// lengths reads the lengths of the chunks of tmp or win.
func (r *reader) lengths(word string, start int) {
	if r.rank < 0 || r.inLane {
		r.fail(start, "%s must come before the lanes of a rank", word)
		return
	}
	buf, place, list := Tmp, &r.places.tmp, &r.program.tmp
	if word == "win" {
		buf, place, list = Win, &r.places.win, &r.program.win
	}
	if len(*list) > 0 {
		r.fail(start, "%s is given twice", word)
	}
	*place = start
	for first := true; r.err == nil && (first || r.peek() != 0); first = false {
		r.skip()
		at := r.at
		r.addRun(buf, r.run(), at)
	}
}

func (r *reader) run() extentRun {
	run := extentRun{times: 1, block: true}
	run.To = r.numbers("block")
	run.From = run.To
	if r.accept(">") {
		run.block = false
		run.To = r.numbers("block")
	}
	r.expect("/")
	run.Part = r.numbers("part")
	if r.accept("*") {
		run.times = r.int("repetitions", 1, MaxTmp)
	}
	return run
}

// numbers reads N or FIRST..LAST.
func (r *reader) numbers(what string) [2]int {
	n := r.int(what, 0, math.MaxInt32)
	last := n
	if r.accept("..") {
		last = r.int(what, 0, math.MaxInt32)
	}
	return [2]int{n, last}
}

func (r *reader) lane(start int) {
	if r.rank < 0 {
		r.fail(start, "a lane must come after its rank")
		return
	}
	l := r.int("lane", 0, MaxLanes-1)
	r.endLane()
	if next := len(r.program.lanes); r.err == nil && l != next {
		r.fail(start, "lane %d, the next one is %d", l, next)
	}
	r.endLine()
	r.beginLane(start)
	r.inLane, r.step = true, 0
}

// stepLine reads a step with or without its number.
func (r *reader) stepLine() {
	start := r.at
	indent := start - r.start
	if !r.inLane {
		r.fail(start, "%s, want rank, tmp, win or lane; steps belong in lanes", r.found())
		return
	}
	if r.loopAt >= 0 && indent <= r.loopAt {
		r.endBody()
	}
	if digit(r.peek()) {
		if n := r.int("step", 0, maxRead); r.err == nil && n != r.step {
			r.fail(start, "step %d, the next one is %d (counting loops unrolled)", n, r.step)
		}
		r.skip()
	}
	at := r.at
	s := r.oneStep()
	r.endLine()
	switch {
	case r.err != nil:
	case r.loopAt >= 0 && s.Kind == Loop:
		r.fail(at, "loops are not nested; end the first one by indenting this line no deeper")
	case r.loopAt >= 0:
		r.addBody(&s, at)
		r.step++
	case s.Kind == Loop:
		r.addStep(&s, at)
		r.loopAt, r.loopPlace, r.loopFrom = indent, at, r.step
	default:
		r.addStep(&s, at)
		r.step++
	}
}

// endBody ends the body of a loop, if one is open.
func (r *reader) endBody() {
	if r.err != nil || r.loopAt < 0 {
		return
	}
	r.loopAt = -1
	loop := &r.items[len(r.items)-1]
	if len(loop.Body) == 0 {
		r.fail(r.loopPlace, "a loop without steps; its body is the lines that follow and are indented deeper")
	}
	r.step = r.loopFrom + loop.Times*len(loop.Body)
}
