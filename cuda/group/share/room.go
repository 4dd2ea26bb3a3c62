package share

import (
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/kernel"
)

// Room says what is where in a window.
type Room struct{ Slot, Graphs, Ranks int }

// Bytes returns the bytes of a window whose slots have a size of their own: those slots come first.
func (r Room) Bytes(slot int) int {
	if r.Ranks == 1 {
		return page.Align // nobody reads it
	}
	return r.RunsAt(slot) + RunsBytes(r.Ranks)
}

// GraphsAt returns where the regions of graphs are.
func (r Room) GraphsAt(slot int) int { return (plan.WindowSlots + scratches(r.Ranks)) * slot }

// RunsAt returns where that for short calls begins: the flags, and then the slots and the packets.
func (r Room) RunsAt(slot int) int {
	return r.GraphsAt(slot) + min(r.Graphs, RegionsOfChunk)*RegionBytes(r.Slot, r.Ranks)
}

// MostSlot is the most bytes of a slot. In the memory of a device, slots grow with it, unless the
// user has said how large they are: a long call then has fewer pieces, each of which costs the
// processor the same. They have one thousandth of the memory each.
const MostSlot = 32 << 20

// SlotOn returns the bytes of a slot in the memory of a device.
func SlotOn(info cuda.Info, staging int, grows bool) int {
	if !grows {
		return SlotOf(staging)
	}
	return max(SlotOf(staging), int(min(MostSlot, info.Bytes/1024))&^(page.Align-1))
}

// SlotOf returns the bytes of a slot.
func SlotOf(staging int) int { return staging / plan.WindowSlots &^ (page.Align - 1) }

// scratches returns the number of slots that the scratch takes.
func scratches(ranks int) int {
	if ranks > kernel.MostSources {
		return 1
	}
	return 0
}

// GraphSlot returns the bytes of a slot of a graph.
func GraphSlot(slot int) int { return slot / 4 &^ (page.Align - 1) }

// RegionBytes returns the bytes of a region of a group of so many ranks: its slots, and the
// scratch.
func RegionBytes(slot, ranks int) int { return (plan.WindowSlots + scratches(ranks)) * GraphSlot(slot) }

// RegionsOfChunk is the number of regions that are made at once.
const RegionsOfChunk = 8

// HasChannel reports whether the windows of a group with so many graphs have channels.
func HasChannel(graphs, ranks int) bool { return graphs > RegionsOfChunk && ranks > 1 }

// RunSlot is the size of a slot for short calls. The longest one fits although each rank's part of
// it begins at a line of the cache, and what comes behind begins at a page.
const RunSlot = tune.MostInterpreted + page.Align

// RunsBytes returns how much of a window short calls have.
func RunsBytes(ranks int) int {
	if ranks > kernel.MostRanks {
		return 0
	}
	return page.Align + plan.WindowSlots*RunSlot + packetsBytes(ranks)
}

// PacketRoom is the room for the packets of a rank, in packets.
const PacketRoom = tune.MostInPackets / kernel.PacketData

// packetsBytes returns how much of a window packets have: both sets, and the blocks that were
// taken.
func packetsBytes(ranks int) int {
	return ranks * (2*PacketRoom*kernel.PacketBytes + tune.MostInPackets)
}
