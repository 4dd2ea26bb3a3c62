package cudatest

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/kernel"
)

// runWork is a kernel that executes a table. Each block is an agent of its own and is executed a
// step at a time, in between those of other blocks and kernels: what one of them waits for, others
// do.
type runWork struct {
	f       *function
	table   *kernel.Run
	agents  []*agent               // of the blocks; nil before the kernel has begun
	awaited uint32                 // the ranks of which the host was told that the kernel waits for them
	put     [kernel.MostBlocks]int // packets of the step that the block is at
	hasty   uint64                 // the steps that take without waiting, since a test left that out
}

// launchTable enqueues a kernel that executes a table.
func (d *Driver) launchTable(h *handle, f *function, blocks int, args []byte) error {
	const call = "cuLaunchKernelEx"
	run, err := kernel.NewRun(f.name, args, blocks)
	if err != nil {
		d.misuse("%s: %v", call, err)
		return invalid(call)
	}
	if h.s.capture != nil {
		d.misuse("%s of %s, which waits, in a stream that is in capture", call, f.name)
		return failure(call, captureForbids)
	}
	w := &runWork{f: f, table: run}
	for i := range run.Table.Steps[:run.Table.Count] {
		switch a := &run.Table.Steps[i]; a.Kind {
		case kernel.Puts:
			if d.leaveOut(WriteWord, "packets of %s in a table, with the flag %d", h.s.agent.name, a.Src[1]) {
				a.N, a.Src[2] = 0, 0
			}
		case kernel.Takes:
			if d.leaveOut(WaitWord, "a wait of %s for packets of rank %d in a table", h.s.agent.name, a.Src[2]) {
				w.hasty |= 1 << i
			}
		default:
			d.leavesOutOf(h.s, a)
		}
	}
	d.enqueue(h, w)
	return nil
}

// leavesOutOf asks of each flag of a step whether to leave it out.
func (d *Driver) leavesOutOf(s *stream, a *kernel.Step) {
	kind, verb := WriteWord, "a signal of %s to rank %d in a table, with the value %d"
	if a.Kind == kernel.Waits {
		kind, verb = WaitWord, "a wait of %s for rank %d in a table, for the value %d"
	} else if a.Kind != kernel.Signals {
		return
	}
	for rank := range kernel.MostRanks {
		if a.Count>>rank&1 == 1 && d.leaveOut(kind, verb, s.agent.name, rank, a.N) {
			a.Count &^= 1 << rank
		}
	}
}

func (w *runWork) text(*Driver) string {
	return fmt.Sprintf("%s, a table of %d steps in %d blocks", w.f.name, w.table.Table.Count, w.table.Blocks())
}

func (w *runWork) uses(a *allocation) bool {
	return slices.ContainsFunc(w.table.Places(), func(o kernel.Operand) bool { return a.has(cuda.Ptr(o.Ptr), o.Bytes) })
}

func (w *runWork) ready(d *Driver) bool {
	for block := range w.table.Blocks() {
		if w.goesOn(d, block) {
			return true
		}
	}
	return w.table.Ended()
}

// goesOn reports whether a block has something to do.
func (w *runWork) goesOn(d *Driver, block int) bool {
	a := w.table.Step(block)
	if a == nil || a.Kind != kernel.Waits && a.Kind != kernel.Takes {
		return a != nil
	}
	came, news := w.look(d, block)
	return came || news != 0 || w.released(d)
}

// look reports whether everything that a block waits for has come, and about which ranks the host
// is to be told something new. The first block tells it.
func (w *runWork) look(d *Driver, block int) (came bool, news uint32) {
	a, lacks := w.table.Step(block), uint32(0)
	if a.Kind == kernel.Takes && !w.tookAll(d, block) {
		lacks = 1 << a.Src[2]
	}
	for rank := range kernel.MostRanks {
		came := func(flag uint64) bool { return d.flagCame(flag, a.N) }
		if a.Kind == kernel.Waits && a.Count>>rank&1 == 1 && !w.table.AwaitsOf(block, rank, came) {
			lacks |= 1 << rank
		}
	}
	if block == 0 {
		news = lacks ^ w.awaited
	}
	return lacks == 0, news
}

// tookAll reports whether all packets have come that a block takes, or cannot be waited for.
func (w *runWork) tookAll(d *Driver, block int) bool {
	m := w.table.Moves(block)
	if m.Bytes == 0 || w.hasty>>w.table.Next(block)&1 == 1 {
		return true
	}
	a, why := d.find(cuda.Ptr(m.Packets), kernel.Packets(m.Bytes)*kernel.PacketBytes)
	return why != "" || m.Taken(a.packet, nil)
}

// packet returns a packet at an address.
func (a *allocation) packet(at uint64) uint64 {
	return atomic.LoadUint64(a.value(int(cuda.Ptr(at) - a.ptr)))
}

// flagCame reports whether a flag has come to a value, or cannot be waited for.
func (d *Driver) flagCame(flag, wanted uint64) bool {
	a, why := d.find(cuda.Ptr(flag), 8)
	if why != "" {
		return true
	}
	value, there := a.peek(int(cuda.Ptr(flag) - a.ptr))
	return !there || reached(value, wanted)
}

// released reports whether the host lets the kernel go.
func (w *runWork) released(d *Driver) bool {
	a, why := d.find(cuda.Ptr(w.table.Table.Released), 8)
	if why != "" {
		return false
	}
	value, there := a.peek(int(cuda.Ptr(w.table.Table.Released) - a.ptr))
	return there && value != 0
}

// waits names the flags that blocks wait for.
func (w *runWork) waits(d *Driver) string {
	text := "waits"
	for block := range w.table.Blocks() {
		a := w.table.Step(block)
		if a != nil && a.Kind == kernel.Takes && !w.tookAll(d, block) {
			text += fmt.Sprintf(" in block %d for packets of rank %d with the flag %d;", block, a.Src[2], a.Src[1])
		}
		if a == nil || a.Kind != kernel.Waits {
			continue
		}
		w.table.Awaits(block, func(flag uint64) bool {
			if !d.flagCame(flag, a.N) {
				of, _ := d.find(cuda.Ptr(flag), 8)
				value, _ := of.peek(int(cuda.Ptr(flag) - of.ptr))
				text += fmt.Sprintf(" in block %d for the flag at %s: it is %d, wanted %d;", block,
					d.place(cuda.Ptr(flag), 8), value, a.N)
			}
			return true
		})
	}
	return text
}

func (w *runWork) ended() bool { return w.table.Ended() }

// run does a step of one of the blocks. The last one ends the kernel.
func (w *runWork) run(d *Driver, op *operation) {
	if w.agents == nil {
		w.begin(d, op)
	}
	blocks, first := w.table.Blocks(), d.random.IntN(w.table.Blocks())
	for i := range blocks {
		if block := (first + i) % blocks; w.goesOn(d, block) {
			w.step(d, op, block)
			break
		}
	}
	if w.ended() {
		for _, block := range w.agents {
			op.stream.agent.clock.join(block.clock)
		}
	}
}

// begin makes agents of the blocks, which know what the stream knows.
func (w *runWork) begin(d *Driver, op *operation) {
	s := op.stream
	for len(s.blocks) < w.table.Blocks() {
		s.blocks = append(s.blocks, d.newAgent(fmt.Sprintf("block %d of %s", len(s.blocks), s.agent.name), false))
	}
	w.agents = s.blocks[:w.table.Blocks()]
	for _, block := range w.agents {
		block.clock.join(s.agent.clock)
	}
}

// step does what a block has to do next.
func (w *runWork) step(d *Driver, op *operation, block int) {
	agent := w.agents[block]
	agent.clock.set(agent.index, agent.now()+1)
	switch a := w.table.Step(block); a.Kind {
	case kernel.Waits, kernel.Takes:
		w.wait(d, op, block)
	case kernel.Puts:
		w.puts(d, op, block)
	case kernel.Signals:
		for rank := range kernel.MostRanks {
			if t := w.table.Table; a.Count>>rank&1 == 1 {
				w.write(d, op, block, "signals by the flag", t.Flag(rank, int(t.Rank), block), a.N)
			}
		}
		w.table.Advance(block)
	default:
		w.move(d, op, block)
		w.table.Advance(block)
	}
}

// access is one by a block.
func (w *runWork) access(op *operation, block int, verb string, a *allocation, p cuda.Ptr, bytes int) *access {
	agent := w.agents[block]
	return &access{by: agent, time: agent.now(), verb: verb, of: a, at: int(p - a.ptr), bytes: bytes, site: op.site}
}

// write has a block write a word: a flag of a peer, or what it tells the host.
func (w *runWork) write(d *Driver, op *operation, block int, verb string, at, value uint64) {
	a, why := d.reach(op, cuda.Ptr(at), 8)
	if why != "" {
		d.illegal(op, why)
		return
	}
	acc := w.access(op, block, verb, a, cuda.Ptr(at), 8)
	acc.word, acc.write = true, true
	if !mapped(func() { atomic.StoreUint64(a.value(acc.at), value) }) {
		d.illegal(op, unmapped)
		return
	}
	clock := w.agents[block].clock
	d.touch(acc, clock)
	d.wrote(a.space.word(a, acc.at), &wordWrite{value: value}, acc, clock)
}

// wait ends the wait of a block, or lets the block go, or tells the host what it waits for.
func (w *runWork) wait(d *Driver, op *operation, block int) {
	came, news := w.look(d, block)
	a := w.table.Step(block)
	for rank := range kernel.MostRanks {
		if news>>rank&1 == 1 {
			w.awaited ^= 1 << rank
			value := max(1, a.N) * uint64(w.awaited>>rank&1)
			w.write(d, op, block, "tells the host by the word", w.table.Table.Awaited+8*uint64(rank), value)
		}
	}
	switch {
	case came && a.Kind == kernel.Takes:
		w.takes(d, op, block)
		w.table.Advance(block)
	case came:
		w.table.Awaits(block, func(flag uint64) bool { w.see(d, op, block, flag, a.N); return true })
		w.table.Advance(block)
	case w.released(d):
		w.table.Leave(block)
	}
}

// puts writes some of the packets of a step.
func (w *runWork) puts(d *Driver, op *operation, block int) {
	m := w.table.Moves(block)
	own := kernel.Packets(m.Bytes)
	from := w.put[block]
	to := min(from+1+d.random.IntN(64), own+m.MorePackets)
	var data []byte
	if m.Bytes > 0 {
		data = w.touched(d, op, block, m.Data, m.Bytes, access{verb: "reads in a table"})
	}
	for ; from < to && !op.dropped; from++ {
		at, packet := m.Packets+uint64(from)*kernel.PacketBytes, uint64(0)
		if from < own && data != nil {
			packet = kernel.Packet(data[from*kernel.PacketData:], m.Flag)
		} else if from >= own {
			at, packet = m.More+uint64(from-own)*kernel.PacketBytes, kernel.Packet(nil, m.Flag)
		}
		if w.touched(d, op, block, at, 8, access{verb: "writes the packet", word: true, write: true}) == nil {
			return
		}
		a, _ := d.find(cuda.Ptr(at), 8)
		atomic.StoreUint64(a.value(int(cuda.Ptr(at)-a.ptr)), packet)
	}
	if w.put[block] = from; from == own+m.MorePackets {
		w.put[block] = 0
		w.table.Advance(block)
	}
}

// takes takes the data of packets. These order nothing but themselves: whoever does not wait for
// them races.
func (w *runWork) takes(d *Driver, op *operation, block int) {
	m := w.table.Moves(block)
	if m.Bytes == 0 {
		return
	}
	waited := w.hasty>>w.table.Next(block)&1 == 0
	bytes := kernel.Packets(m.Bytes) * kernel.PacketBytes
	w.touched(d, op, block, m.Packets, bytes, access{verb: "takes packets in a table", word: waited})
	data := w.touched(d, op, block, m.Data, m.Bytes, access{verb: "writes in a table", write: true})
	if a, why := d.find(cuda.Ptr(m.Packets), bytes); why == "" && data != nil {
		m.Taken(a.packet, data)
	}
}

// touched notes an access of a block, and returns the bytes, nil if there are none.
func (w *runWork) touched(d *Driver, op *operation, block int, at uint64, bytes int, like access) []byte {
	a, why := d.reach(op, cuda.Ptr(at), bytes)
	if why != "" {
		d.illegal(op, why)
		return nil
	}
	acc := w.access(op, block, like.verb, a, cuda.Ptr(at), bytes)
	acc.word, acc.write = like.word, like.write
	d.touch(acc, w.agents[block].clock)
	return a.part(cuda.Ptr(at), bytes)
}

// see orders a block behind the write of a flag.
func (w *runWork) see(d *Driver, op *operation, block int, flag, value uint64) {
	a, why := d.reach(op, cuda.Ptr(flag), 8)
	if why != "" {
		d.illegal(op, why)
		return
	}
	acc := w.access(op, block, "waits for the flag", a, cuda.Ptr(flag), 8)
	acc.word = true
	clock, word := &w.agents[block].clock, a.space.word(a, acc.at)
	d.touch(acc, *clock)
	d.checkWait(word, acc, *clock)
	if by := word.freed(value); by != nil {
		clock.join(by.known)
	}
}

// move does a step that moves data.
func (w *runWork) move(d *Driver, op *operation, block int) {
	operands, err := w.table.Operands(block)
	if err != nil {
		d.report(Misuse, op.site.String(), "%s, enqueued at %s: %v", op, op.site, err)
		return
	}
	clock, places := w.agents[block].clock, map[kernel.Operand]*allocation{}
	for _, o := range operands {
		a, why := d.reach(op, cuda.Ptr(o.Ptr), o.Bytes)
		switch {
		case why != "":
			d.illegal(op, why)
			return
		case o.Ptr%uint64(o.Align) != 0:
			d.wrong(op, misalignedAddress, fmt.Sprintf("%#x is not aligned to %d bytes", o.Ptr, o.Align))
			return
		}
		places[kernel.Operand{Ptr: o.Ptr, Bytes: o.Bytes}] = a
		acc := w.access(op, block, "reads in a table", a, cuda.Ptr(o.Ptr), o.Bytes)
		if o.Write {
			acc.verb, acc.write = "writes in a table", true
		}
		d.touch(acc, clock)
	}
	memory := func(ptr uint64, bytes int) []byte {
		if a := places[kernel.Operand{Ptr: ptr, Bytes: bytes}]; a != nil {
			return a.part(cuda.Ptr(ptr), bytes)
		}
		return nil
	}
	d.moveBytes(op, func() error { return w.table.Execute(block, memory) })
}
