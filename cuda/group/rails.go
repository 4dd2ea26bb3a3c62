package group

import (
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
)

// rails are the way of the messages of programs between hosts: to and from each rank with the same
// place on another host there is a pipeline, apart from those of the caller's messages. A message
// is an Op inside that of its call. It moves as any staged message does, and the stream of the
// windows waits for it only where the program does (program.Streams).
//
// A call of several pieces begins each piece before it goes on with the one before, up to where
// that would wait for a message. So while the messages of a piece travel, the devices of a host
// reduce the next one. The messages of two ranks keep the order of the pieces. Two pieces are under
// way at the same time, so there is Tmp for two.
//
// In front of its data a message has the print of its call, by which ranks of different hosts find
// out that they have called different things. A rank that fails says so to the ranks of its host
// before it lets the streams of messages go, since those of the windows follow them.
type rails struct {
	w        *windows
	to, from []*pipeline                 // by rank; nil for those that are on none of the rails
	all      []*pipeline                 // of both
	memory   cuda.Memory                 // Tmp
	orders   map[*program.Lowered]*order // of all plans
	turns    [2]turn
	block    [1]exec.Block
	events   []cuda.Event // all that were made
}

// order says how the lanes of a plan go together.
type order struct {
	marks [][]int // by lane and step: the number of the event that marks its end, or -1
	count int     // events
	lines []line  // by lane; that of lane 0 is empty
}

// line is a lane of messages.
type line struct {
	pipeline *pipeline
	sends    bool
	anchored bool // its first message comes after a step of another lane
	reads    bool // it sends from Tmp
	writes   bool // it receives into Tmp
	open     bool // lane 0 does not come after its last message
}

// turn is a piece of a call that is being enqueued.
type turn struct {
	piece   int
	program program.Program
	next    []int        // by lane: the instruction that comes next
	marks   []cuda.Event // see order
	begun   cuda.Event   // where the piece begins in the stream of the windows
	ended   []cuda.Event // by lane: where its messages end
}

// ownTag is the tag of the messages of programs. Callers have no tags with this bit.
const ownTag = 1 << 31

// headBytes is what comes before the data of such a message in its slot: the print of the call. So
// ranks that call different things find out, as those of a host do by their pages.
const headBytes = 64

// railSlot returns the least size of a slot of rails, for windows with slots of the given size. A
// message is half of these at most, and all of its pieces surely leave (batch): so ranks that send
// to each other before they receive do not wait in a circle if streams share a hardware queue.
func railSlot(window int) int {
	return (window/2/surely + headBytes + page.Align - 1) &^ (page.Align - 1)
}

// unlimited is the time that the host has for a message. The call has a deadline.
const unlimited = time.Duration(1 << 62)

// newRails makes what the rails need on the device.
func newRails(w *windows) (r *rails, err error) {
	r = &rails{w: w, to: w.g.staged.to, from: w.g.staged.from, orders: map[*program.Lowered]*order{}}
	for _, p := range slices.Concat(r.from, r.to) {
		if p != nil {
			p.failed, r.all = w.failed, append(r.all, p)
		}
	}
	r.memory, err = w.g.ctx.Alloc(len(r.turns) * w.Room.Slot)
	return r, err
}

// close gives that back.
func (r *rails) close() error {
	var errs []error
	for _, event := range r.events {
		errs = append(errs, event.Destroy())
	}
	return errors.Join(append(errs, r.memory.Free())...)
}

// onRails reports whether all messages of a plan are on rails. All ranks answer alike.
func onRails(p *plan.Plan, on *topo.Group) bool {
	for rank := range p.Spec.Ranks {
		rails := on.Rails(rank)
		for _, lane := range p.Program(rank).Lanes[1:] {
			if !slices.Contains(rails, lane[0].Peer) {
				return false
			}
		}
	}
	return true
}

func (r *rails) suits(o *Op) (bool, error) { return len(r.orders[o.low].lines) > 1, nil }

// learn finds out how the lanes of a plan go together.
func (r *rails) learn(p *plan.Plan, low *program.Lowered) {
	lanes := p.Program(r.w.g.rank).Lanes
	made := &order{lines: make([]line, len(lanes))}
	for l, lane := range lanes {
		marks := make([]int, len(lane))
		for i := range marks {
			marks[i] = -1
		}
		made.marks = append(made.marks, marks)
		if l > 0 {
			made.lines[l] = r.line(lanes, l)
		}
	}
	for _, lane := range lanes {
		for i := range lane {
			for _, after := range lane[i].After {
				if mark := &made.marks[after.Lane][after.Step]; *mark < 0 {
					*mark = made.count
					made.count++
				}
			}
		}
	}
	r.orders[low] = made
}

func (r *rails) line(lanes [][]plan.Step, l int) line {
	lane := lanes[l]
	made := line{sends: lane[0].Kind.Traits().Sends, anchored: len(lane[0].After) > 0}
	if made.sends {
		made.pipeline = r.to[lane[0].Peer]
	} else {
		made.pipeline = r.from[lane[0].Peer]
	}
	for i := range lane {
		made.reads = made.reads || made.sends && lane[i].Src[0].Buf == plan.Tmp
		made.writes = made.writes || !made.sends && lane[i].Dst.Buf == plan.Tmp
	}
	made.open = !joins(lanes, l, len(lane)-1)
	return made
}

// joins reports whether lane 0 comes after a step of another lane.
func joins(lanes [][]plan.Step, l, step int) bool {
	for m, lane := range lanes {
		for i := range lane {
			for _, after := range lane[i].After {
				if after.Lane == l && after.Step >= step && (m == 0 || joins(lanes, m, i)) {
					return true
				}
			}
		}
	}
	return false
}

// ready makes the streams and events that a plan needs.
func (r *rails) ready(of *order) error {
	for l := 1; l < len(of.lines); l++ {
		if err := of.lines[l].pipeline.open(); err != nil {
			return err
		}
	}
	for i := range r.turns {
		t := &r.turns[i]
		for len(t.marks) < 1+of.count+len(of.lines) {
			made, err := r.w.g.ctx.NewEvent()
			if err != nil {
				return err
			}
			t.marks, r.events = append(t.marks, made), append(r.events, made)
		}
		t.begun, t.ended = t.marks[of.count], t.marks[of.count+1:]
	}
	return nil
}

// enqueue enqueues a call. After an error the stream of the windows waits for all messages.
func (r *rails) enqueue(o *Op) error {
	if err := r.pieces(o); err != nil {
		r.join()
		return err
	}
	return r.w.endPieces(o)
}

// pieces enqueues the pieces of a call.
func (r *rails) pieces(o *Op) error {
	of := r.orders[o.low]
	if err := r.ready(of); err != nil {
		return err
	}
	if err := r.start(o, of, 0); err != nil {
		return err
	}
	for piece := range o.cut.pieces {
		t := &r.turns[piece%2]
		r.switchTo(t)
		if err := r.send(o, of, t); err != nil {
			return err
		}
		if piece+1 < o.cut.pieces {
			if err := r.start(o, of, piece+1); err != nil {
				return err
			}
			r.switchTo(t)
		}
		if err := r.resume(o, of, t); err != nil {
			return err
		}
	}
	return nil
}

// switchTo makes the piece of a turn that which the emitter is at.
func (r *rails) switchTo(t *turn) {
	r.w.Program = &t.program
	r.w.Tmp = r.memory.Ptr() + cuda.Ptr(t.piece%2*r.w.Room.Slot)
}

// start enqueues what a piece does before it waits for messages.
func (r *rails) start(o *Op, of *order, piece int) error {
	t := &r.turns[piece%2]
	t.piece = piece
	r.switchTo(t)
	w := r.w
	if err := w.Compile(&o.call, o.low, piece); err != nil {
		return err
	}
	o.cut.pieces = w.Program.Last + 1
	t.next = program.Resized(t.next, len(of.lines))
	clear(t.next)
	marked := false
	for l := 1; l < len(of.lines); l++ {
		line := &of.lines[l]
		t.next[l] = 1 // behind OpEnter, which is about windows
		marked = marked || line.waits(piece)
		if piece >= 2 && line.reads && line.open {
			if err := w.after(t.ended[l]); err != nil {
				return err
			}
		}
	}
	if marked {
		if err := w.mark(t.begun); err != nil {
			return err
		}
	}
	for lane := w.Program.Lanes[0]; t.next[0] < len(lane) && len(lane[t.next[0]].Gates) == 0; {
		if err := r.step(o, of, t); err != nil {
			return err
		}
	}
	return nil
}

// waits reports whether a line waits for the begin of a piece: the first one comes behind what the
// caller's stream and earlier calls did, and Tmp is used by every second one.
func (l *line) waits(piece int) bool { return !l.anchored && piece == 0 || piece >= 2 && l.writes }

// after has the stream of the windows wait for an event.
func (w *windows) after(e cuda.Event) error {
	if err := w.Flush(); err != nil {
		return err
	}
	return w.Stream.Wait(e)
}

// mark records an event in the stream of the windows.
func (w *windows) mark(e cuda.Event) error {
	if err := w.Flush(); err != nil {
		return err
	}
	return e.Record(w.Stream)
}

// step enqueues the next instruction of lane 0, behind the messages that it comes after.
func (r *rails) step(o *Op, of *order, t *turn) error {
	w := r.w
	lane, i := w.Program.Lanes[0], t.next[0]
	b := &lane[i]
	for _, g := range b.Gates {
		if err := r.sendUpTo(o, of, t, g.Lane, g.Step); err != nil {
			return err
		}
		if err := w.after(t.marks[of.marks[g.Lane][g.Step]]); err != nil {
			return err
		}
	}
	if err := w.part(o, t.piece, lane[i:i+1]); err != nil {
		return err
	}
	t.next[0]++
	if b.Step == nil || i+1 < len(lane) && lane[i+1].PC == b.PC || of.marks[0][b.PC] < 0 {
		return nil
	}
	return w.mark(t.marks[of.marks[0][b.PC]])
}

// resume enqueues the rest of a piece. The windows of the peers are left before the last messages
// have moved, which do not touch them; the call ends behind those.
func (r *rails) resume(o *Op, of *order, t *turn) error {
	w := r.w
	for t.next[0] < len(w.Program.Lanes[0]) {
		if err := r.step(o, of, t); err != nil {
			return err
		}
		if err := r.send(o, of, t); err != nil {
			return err
		}
	}
	for _, leave := range w.Program.Lanes[len(of.lines):] {
		if err := w.part(o, t.piece, leave); err != nil {
			return err
		}
	}
	for l := 1; l < len(of.lines); l++ {
		if err := r.sendUpTo(o, of, t, l, len(of.marks[l])-1); err != nil {
			return err
		}
	}
	if t.piece+1 < o.cut.pieces {
		return nil
	}
	for l := 1; l < len(of.lines); l++ {
		if !of.lines[l].open {
			continue
		}
		if err := w.after(t.ended[l]); err != nil {
			return err
		}
	}
	return nil
}

// passed reports whether all of a step has been enqueued.
func (r *rails) passed(t *turn, lane, step int) bool {
	instructions, next := r.w.Program.Lanes[lane], t.next[lane]
	return next == len(instructions) || instructions[next].PC > step
}

// send enqueues the sends that come after nothing that has not been enqueued.
func (r *rails) send(o *Op, of *order, t *turn) error {
	for l := 1; l < len(of.lines); l++ {
		for of.lines[l].sends && r.free(t, l) {
			if err := r.message(o, of, t, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// free reports whether the next message of a lane comes after nothing that has not been enqueued.
func (r *rails) free(t *turn, l int) bool {
	lane := r.w.Program.Lanes[l]
	if t.next[l] == len(lane) {
		return false
	}
	for _, g := range lane[t.next[l]].Gates {
		if !r.passed(t, g.Lane, g.Step) {
			return false
		}
	}
	return true
}

// sendUpTo enqueues the messages of a lane up to a step. What waits for peers so comes as late as
// it can, and behind all sends that can go: streams may share a hardware queue.
func (r *rails) sendUpTo(o *Op, of *order, t *turn, l, step int) error {
	for !r.passed(t, l, step) {
		for _, g := range r.w.Program.Lanes[l][t.next[l]].Gates {
			if g.Lane == 0 {
				continue // it comes earlier in lane 0 than what waits for this message
			}
			if err := r.sendUpTo(o, of, t, g.Lane, g.Step); err != nil {
				return err
			}
		}
		if err := r.send(o, of, t); err != nil {
			return err
		}
		if r.passed(t, l, step) {
			return nil
		}
		if err := r.message(o, of, t, l); err != nil {
			return err
		}
	}
	return nil
}

// message enqueues the next message of a lane.
func (r *rails) message(o *Op, of *order, t *turn, l int) error {
	line, b := &of.lines[l], &r.w.Program.Lanes[l][t.next[l]]
	first := t.next[l] == 1
	t.next[l]++
	for _, g := range b.Gates {
		event := t.marks[of.marks[g.Lane][g.Step]]
		if !line.sends && g.Lane > 0 && of.lines[g.Lane].sends {
			if err := line.afterSend(event); err != nil {
				return err
			}
			continue
		}
		if err := line.pipeline.last().Wait(event); err != nil {
			return err
		}
	}
	if first && line.waits(t.piece) {
		if err := line.pipeline.last().Wait(t.begun); err != nil {
			return err
		}
	}
	if err := r.move(o, line, b); err != nil {
		return err
	}
	if mark := of.marks[l][b.PC]; mark >= 0 {
		if err := line.ends(t.marks[mark]); err != nil {
			return err
		}
	}
	again := t.piece+2 < o.cut.pieces // the turn has another piece
	if last := t.next[l] == len(r.w.Program.Lanes[l]); !last || !line.open || again && !line.reads ||
		!again && t.piece+1 < o.cut.pieces {
		return nil
	}
	return t.ended[l].Record(line.pipeline.last())
}

// ends marks the end of a message in its stream.
func (l *line) ends(mark cuda.Event) error {
	if !l.sends {
		return mark.Record(l.pipeline.last())
	}
	return l.hasSent(mark)
}

// move has a message move, behind what its stream waits for.
func (r *rails) move(o *Op, line *line, b *program.Instruction) error {
	p := line.pipeline
	call := exec.Call{Coll: dtype.Recv, Type: dtype.U8, Root: b.Peer, Tag: ownTag, Timeout: unlimited}
	chunks := b.To
	if line.sends {
		call.Coll, chunks = dtype.Send, b.From
	}
	r.block[0] = exec.Block{}
	if len(chunks) > 0 && chunks[0].Bytes > 0 {
		at := r.w.Address(&chunks[0].Operand)
		r.block[0] = exec.Block{Ptr: *(*unsafe.Pointer)(unsafe.Pointer(&at)), Count: chunks[0].Bytes}
	}
	if line.sends {
		call.In = r.block[:]
	} else {
		call.Out = r.block[:]
	}
	c, err := newCut(&call, r.w.g.size, 1, p.bytes-headBytes)
	if err != nil {
		return err
	}
	message, err := r.w.g.nested(o, &call, c)
	if err != nil {
		return err
	}
	defer message.drop()
	p.hand(message)
	for piece := range c.pieces {
		if err := p.enqueueMessage(message, piece); err != nil {
			return err
		}
	}
	return nil
}

// join has the stream of the windows wait for all messages.
func (r *rails) join() {
	for _, p := range r.all {
		if p.opened && r.w.follow(r.w.Stream, p.last()) != nil {
			return
		}
	}
}

// awaits returns a rank on another host whose message a call waits for, or that does not take one,
// or -1.
func (r *rails) awaits(o *Op) int {
	for _, p := range r.all {
		if p.inFlight == 0 {
			continue
		}
		if message := p.flights[p.tail].of; message.of == o {
			return message.call.Root
		}
	}
	return -1
}
