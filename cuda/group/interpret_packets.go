package group

import (
	"math"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/cuda/kernel"
)

// The shortest calls in which every rank reads the blocks of all others are made in packets: half
// of each is data, and half the flag that says that these are there. A rank puts its block into the
// memory of every peer, and takes theirs out of its own, so nobody waits for a signal behind the
// data. It is what all_reduce=one_shot does, with the operands in the same order as the plan over
// windows that it replaces.
//
// Packets are used in turn in two sets. A rank that puts into a set again has taken, one call of
// this kind ago, packets of each peer, which that one has put behind the call before: it had taken
// everything out of the set by then. So nothing is waited for but packets. The flag is the number
// of the call, whose 32 bits come round: so now and then a call puts whole sets, and no packet
// keeps a flag until the same number comes again. That a packet has come says nothing of other
// memory.

// wholeSets is after how many calls two in a row put whole sets.
const wholeSets = 1 << 20

// packetsAt returns where the packets are that one rank puts into the memory of another.
func (n *interpreter) packetsAt(owner, writer, set int) cuda.Ptr {
	ranks := len(n.Places)
	return n.packets[owner] + cuda.Ptr((set*ranks+writer)*share.PacketRoom*kernel.PacketBytes)
}

// takenAt returns where this rank has a block that it has taken out of packets.
func (n *interpreter) takenAt(rank int) cuda.Ptr {
	return n.packetsAt(n.w.g.rank, 0, 2) + cuda.Ptr(rank*tune.MostInPackets)
}

// inPackets reports whether a call is made in packets. All ranks answer alike: what they do not
// know of each other is the factor of PREMUL_SUM. Nothing comes from a rank that has no elements,
// so one that is ahead would not know that it may put the next packets.
func (n *interpreter) inPackets(call *exec.Call) bool {
	longest, shortest := 0, tune.MostInPackets
	for _, blocks := range [2][]exec.Block{call.In, call.Out} {
		for i := range blocks {
			n := blocks[i].Count * call.Type.Size()
			longest, shortest = max(longest, n), min(shortest, n)
		}
	}
	name := n.Program.Low.Name
	premultiplied := call.Coll.Reduces() && call.Op == dtype.PremulSum
	return shortest > 0 && longest <= tune.MostInPackets && !premultiplied && len(n.w.peers) == len(n.Places)-1 &&
		(call.Coll == dtype.AllReduce && n.folds[n.Program.Low] || call.Coll == dtype.AllGather && name == "window")
}

// foldsOnce reports whether each rank reduces the blocks of all ranks by one step, in the order of
// the ranks: then packets give the bits of the plan. The name of a plan does not tell: plans of
// users may have any.
func foldsOnce(p *plan.Plan) bool {
	if p.Spec.Coll != dtype.AllReduce || p.Split != 1 {
		return false
	}
	whole := func(r plan.Ref, b plan.Buffer) bool { return r == plan.Ref{Buf: b, N: 1} }
	for rank := range p.Spec.Ranks {
		prog, folds := p.Program(rank), 0
		flat := prog.Flat()
		if len(flat.Lanes) != 1 || len(flat.Tmp) > 0 {
			return false
		}
		for _, s := range flat.Lanes[0] {
			switch {
			case s.Kind.Traits().Flagged() && !s.Kind.Traits().Puts:
			case len(s.Src) == 1 && whole(s.Dst, plan.Win) && whole(s.Src[0], plan.In):
			case len(s.Src) == p.Spec.Ranks && whole(s.Dst, plan.Out):
				folds++
				for k, r := range s.Src {
					own := s.From == nil || s.From[k] == rank
					if own && (k != rank || !whole(r, plan.In)) || !own && (s.From[k] != k || !whole(r, plan.Win)) {
						return false
					}
				}
			default:
				return false
			}
		}
		if folds != 1 {
			return false
		}
	}
	return true
}

// packetTable makes the table of a call in packets.
func (n *interpreter) packetTable(o *Op) {
	n.steps.table.Count, n.steps.full = 0, false
	call, rank := &o.call, n.w.g.rank
	set, flag, whole := int(n.put%2), packetFlag(n.put), 0
	if n.put%wholeSets < 2 {
		whole = share.PacketRoom
	}
	n.put++
	own := call.In[0]
	ownBytes := own.Count * call.Type.Size()
	for _, peer := range n.w.peers {
		to := n.packetsAt(peer, rank, set)
		n.steps.keep(n.steps.table.Put(uint64(to), uint64(emit.Pointer(own)), ownBytes, flag, whole))
	}
	if call.Coll == dtype.AllGather && emit.Pointer(call.Out[rank]) != emit.Pointer(own) {
		n.steps.Copy(emit.Pointer(call.Out[rank]), emit.Pointer(own), ownBytes)
	}
	from := n.operands[:0]
	for peer := range n.Places {
		into, bytes := n.takenAt(peer), ownBytes
		if call.Coll == dtype.AllGather {
			into, bytes = emit.Pointer(call.Out[peer]), call.Out[peer].Count*call.Type.Size()
		}
		if peer == rank {
			from = append(from, uint64(emit.Pointer(own)))
			continue
		}
		from = append(from, uint64(into))
		n.steps.keep(n.steps.table.Take(uint64(into), uint64(n.packetsAt(rank, peer, set)), bytes, flag, peer))
	}
	if call.Coll == dtype.AllGather {
		return
	}
	kind := kernel.Reduces
	if n.Program.Post != 1 {
		kind = kernel.Scales
	}
	sum, _ := kernel.Reduce(call.Type, call.Op)
	n.steps.add(kind, sum.Arguments(uint64(emit.Pointer(call.Out[0])), own.Count, n.Program.Post, from...).Step)
}

// packetFlag returns the flag of a call, which is not 0.
func packetFlag(nth uint64) uint32 { return uint32(nth%math.MaxUint32) + 1 }

// steps is a table, and the stream of an emitter: copies and kernels that are enqueued become
// steps.
type steps struct {
	cuda.Stream // nil: nothing else is enqueued
	table       kernel.Table
	full        bool // there was no room
}

// step is the function of an emitter that becomes a step of its kind.
type step kernel.StepKind

func (s step) Name() string { return "a step of a table" }

// stepOf returns the step that does what a kernel does; 0 for kernels that no table has.
func stepOf(f *kernel.Function) step { return step(f.Step()) }

func (s *steps) Copy(to, from cuda.Ptr, bytes int) error {
	s.add(kernel.Copies, kernel.Copy().Arguments(uint64(to), bytes, 1, uint64(from)).Step)
	return nil
}

func (s *steps) Launch(f cuda.Function, _, _ int, args []byte) error {
	s.add(kernel.StepKind(f.(step)), (*kernel.Arguments)(unsafe.Pointer(unsafe.SliceData(args))).Step)
	return nil
}

func (s *steps) add(kind kernel.StepKind, what kernel.Step) {
	s.keep(s.table.Add(kind, what))
}

// keep notes whether there was room for a step.
func (s *steps) keep(added bool) { s.full = s.full || !added }
