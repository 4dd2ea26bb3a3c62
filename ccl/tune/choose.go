package tune

import (
	"math"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo"
)

// Bounds of small messages. A direct exchange between all ranks takes fewer steps than a ring. It
// is better until the bytes that a rank has to send, or to hold for one message, cost more than the
// steps.
const (
	smallMessage = 32 << 10 // one message
	smallTotal   = 96 << 10 // the messages that a rank sends to all others: three small messages
)

// longBroadcast is the size above which a broadcast between hosts is passed on as it comes in. With
// ports of 1 Gbit/s and 100 Mbit/s and 3, 4 and 6 ranks, 256 KiB to 4 MiB took 0.95 to 1.2 times as
// long as by the best algorithm (chain), and by binomial 1.9 to 3.0 times (2026-11-29). On many
// ranks a tree has fewer steps than a chain.
const longBroadcast = 128 << 10

// fewRanks is the most ranks for which an all_to_all without rounds is better, since only so few
// senders can meet at one receiver.
const fewRanks = 8

// Above manyRanks ranks an exchange between all of them, or a ring, takes too many messages while
// these are short: log n steps are better.
const (
	manyRanks   = 16
	shortWhole  = 8 << 10 // of all_reduce's block: it is swapped whole
	shortBlocks = 8 << 10 // of a rank's part
)

// Call is what the choice depends on of a call. Bytes is the size of a block where a rank has one
// block on both sides (all_reduce, reduce, broadcast), and of all blocks together where it has a
// block for each rank.
type Call struct {
	Coll  dtype.Collective
	Bytes int64
}

// Wishes are what the user wants of the choice. They are the same on all ranks.
type Wishes struct {
	// Override names the algorithm of a collective. It takes precedence over everything else.
	Override map[dtype.Collective]string
	// Table is tried before the library's table; it may be nil.
	Table *Table
	// Among, if it is given, chooses between ranks that are hosts of their own, where no row fits
	// and Determinism allows it; usual is what the rules choose.
	Among func(call Call, usual string) string
	// Determinism 3 or 4 allows only algorithms that reduce in rank order (level 4 of package
	// verify). They give the same bits at every size, so the choice among them may depend on the
	// size.
	Determinism int
}

// ordered reports whether a collective must reduce in rank order.
func (w *Wishes) ordered(coll dtype.Collective) bool { return w.Determinism > 2 && coll.Reduces() }

// Choose returns the name of the algorithm for a call of a group; algo.Find knows it. All ranks
// must call Choose with the same values. Choose allocates nothing.
//
// An override comes first, then the first row that fits in wishes.Table, then the first row that
// fits in the library's table. Before that, broadcast is window above 32 KiB on 3 and 4 ranks that
// share cores and claim memory (topo.Group.Claims). For calls that no row fits:
//
//	all_reduce                  direct while a message, of bytes, is small; else ring.
//	all_gather, reduce_scatter  direct while a message, of bytes/ranks, is small; else ring.
//	all_to_all                  linear up to 8 ranks, pairwise for more
//	broadcast, reduce           binomial; broadcast of more than 128 KiB between ranks that are
//	                            hosts of their own double_binary_tree, if none has RDMA
//	scatter, gather             linear
//	barrier                     dissemination
//
// On more than 16 ranks all_reduce is recursive_doubling up to 8 KiB, and rabenseifner while
// bytes/ranks is at most 8 KiB; all_gather is then bruck and reduce_scatter pat. Wishes.Among,
// which knows what the network costs, may choose otherwise, also among hosts that are levels
// (below), but not where a rank has RDMA.
//
// A message is small up to 32 KiB, if all messages that a rank sends are at most 96 KiB together.
// Where Wishes.Determinism asks for rank order, all_reduce is direct or two_shot, reduce_scatter is
// direct and reduce is flat.
//
// Several hosts, of several ranks each, are used as levels unless Wishes.Determinism asks for rank
// order; only all_reduce is for hosts of unequal size:
//
//	all_reduce                  recursive_doubling up to 4 KiB on up to 8 ranks, if they are a power
//	                            of two and those of a host consecutive; else
//	                            hierarchical.direct.X, with X as among as many ranks as there are
//	                            hosts, with messages of bytes/(ranks of a host)
//	all_gather, reduce_scatter  the same, with messages of bytes/ranks
//	all_to_all                  on more than 16 ranks, those of a host consecutive, hierarchical up
//	                            to 32 KiB for each block
//
// Where hosts are at several sites, these are a level more of all_reduce, all_gather and
// reduce_scatter, for sites of as many hosts; where each rank is a host, all_reduce is for sites of
// any size. Up to 1 MiB it is, within a site, direct while a message is small, else ring;
// between sites, where a step takes as long as many within, direct, or two_shot for the long
// messages of an all_reduce between more than two.
//
// The size of an all_to_all is 0 at first, since a rank knows only the lengths of its own blocks.
// For hierarchical the ranks tell each other the lengths; then it is chosen anew.
//
// Where the ranks of each host read each other's windows, hierarchical.window takes the place of
// hierarchical.direct for up to sixteen slots. Longer operations would run in many pieces, each of
// which crosses the network before the next one begins: on a long path that costs more than it
// saves.
//
// Ranks that read each other's windows have other choices, all of which satisfy every
// Wishes.Determinism:
//
//	all_reduce                  one_shot_window while the windows that a rank reads have up to
//	                            96 KiB, else two_shot_window
//	all_gather, reduce_scatter, all_to_all
//	                            window
//	broadcast                   window while the message is small, else binomial
//	reduce                      window above 64 KiB, where more than two ranks share cores
//	barrier                     flags
//
// Devices use windows for everything, and all_reduce is one_shot_window while the operations of
// two_shot_window would take longer than the bytes that it reads less (oneShotOnDevice). On several
// hosts of equal size they use windows within hosts, and the processor's messages between them:
// all_reduce, all_gather and reduce_scatter are hierarchical.window.X, with X as above, but for
// reductions where Wishes.Determinism asks for rank order. Everything else has no plan over
// windows.
func Choose(call Call, on *topo.Group, wishes *Wishes) (name string) {
	name, _ = Explain(call, on, wishes)
	return name
}

// Explain is Choose, and says why.
func Explain(call Call, on *topo.Group, wishes *Wishes) (name string, why Why) {
	if name, ok := wishes.Override[call.Coll]; ok {
		return name, Wished
	}
	if devices, execute := on.Devices(); execute {
		if len(on.Hosts()) == 1 {
			return onDevice(call, on.Size(), devices), Ruled
		}
		return betweenHosts(call, on, wishes), Ruled
	}
	if name := wishes.Table.choose(call, on, wishes); name != "" {
		return name, InTable
	}
	if fewOfClaiming(call, on) {
		return "window", Measured
	}
	if name := defaultTable.choose(call, on, wishes); name != "" {
		return name, Measured
	}
	if name = unmeasured(call, on, wishes); wishes.Among == nil {
		return name, Ruled
	}
	rules := *wishes
	if rules.Among = nil; unmeasured(call, on, &rules) == name {
		return name, Ruled
	}
	return name, Predicted
}

// Why says what has decided on an algorithm.
type Why uint8

// What decides, from what takes precedence to what is left.
const (
	Wished    Why = iota // Wishes.Override
	InTable              // a row of Wishes.Table
	Measured             // a row of the library's table
	Predicted            // Wishes.Among, against the rules
	Ruled                // the rules
)

func (w Why) String() string {
	return [...]string{"GOCCL_ALGO", "GOCCL_TUNE", "measured", "predicted", "rule"}[w]
}

// claimedBroadcast is the size above which few ranks that share cores, and claim memory, broadcast
// over windows: on 4 ranks on 2 cores 64 KiB took 10.8 µs, and 11.5 by messages; 256 KiB 31 and 49
// (Intel Emerald Rapids, 2026-11-29). The library's table is of another processor.
const claimedBroadcast = 32 << 10

// fewOfClaiming reports whether a call is such a broadcast.
func fewOfClaiming(call Call, on *topo.Group) bool {
	return call.Coll == dtype.Broadcast && call.Bytes > claimedBroadcast && on.Claims() && on.Windows() &&
		on.Oversubscribed() && on.Size() > 2 && on.Size() <= 4
}

// Rows calls use with each row that a group may use, in the order in which rows are tried.
func (w *Wishes) Rows(on *topo.Group, use func(Row)) {
	w.Table.of(on, w, use)
	defaultTable.of(on, w, use)
}

// unmeasured returns the choice for calls that no row fits.
func unmeasured(call Call, on *topo.Group, wishes *Wishes) string {
	if on.Windows() {
		if name := overWindows(call, on.Size(), on.Oversubscribed()); name != "" {
			return name
		}
	}
	if name := overHosts(call, on, wishes); name != "" {
		return name
	}
	return overAll(call, on, wishes)
}

// overAll returns the choice among messages alone, whichever ranks share a host.
func overAll(call Call, on *topo.Group, wishes *Wishes) string {
	ranks := on.Size()
	if wishes.ordered(call.Coll) {
		if call.Coll == dtype.AllReduce && !small(ranks, call.Bytes) {
			return "two_shot"
		}
		if call.Coll == dtype.Reduce {
			return "flat"
		}
		return "direct"
	}
	name := usual(call, ranks)
	if len(on.Hosts()) < ranks {
		return name
	}
	name = bySites(call, on, name)
	if on.Has("rdma") {
		return name // adapters send long messages in place, and nobody has measured them
	}
	if call.Coll == dtype.Broadcast && call.Bytes > longBroadcast {
		name = "double_binary_tree"
	}
	return wishes.among(call, name)
}

// among returns the choice between hosts, each of which is one rank of it.
func (w *Wishes) among(call Call, usual string) string {
	if w.Among == nil {
		return usual
	}
	return w.Among(call, usual)
}

// usual returns the choice among messages by the rules.
func usual(call Call, ranks int) string {
	switch call.Coll {
	case dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter:
		return overMessages(call, ranks)
	case dtype.AllToAll:
		if ranks <= fewRanks {
			return "linear"
		}
		return "pairwise"
	case dtype.Broadcast, dtype.Reduce:
		return "binomial"
	case dtype.Scatter, dtype.Gather:
		return "linear"
	case dtype.Barrier:
		return "dissemination"
	}
	return ""
}

// overMessages returns the algorithm among ranks, or among hosts.
func overMessages(call Call, ranks int) string {
	coll, bytes := call.Coll, call.Bytes
	if ranks > manyRanks && bytes <= shortBlocks*int64(ranks) {
		switch {
		case coll == dtype.AllReduce && bytes <= shortWhole:
			return "recursive_doubling"
		case coll == dtype.AllReduce:
			return "rabenseifner"
		case coll == dtype.AllGather:
			return "bruck"
		}
		return "pat"
	}
	message := bytes
	if coll != dtype.AllReduce {
		message /= int64(max(ranks, 1))
	}
	if small(ranks, message) {
		return "direct"
	}
	return "ring"
}

// overWindows returns the algorithm for ranks that read each other's windows, "" where messages are
// better.
func overWindows(call Call, ranks int, oversubscribed bool) string {
	switch bytes := call.Bytes; call.Coll {
	case dtype.AllReduce:
		if bytes*int64(ranks-1) <= smallTotal {
			return "one_shot_window"
		}
		return "two_shot_window"
	case dtype.AllGather, dtype.ReduceScatter, dtype.AllToAll:
		return "window"
	case dtype.Broadcast:
		if bytes <= smallMessage {
			return "window"
		}
	case dtype.Reduce:
		if oversubscribed && ranks > 2 && bytes > longReduce {
			return "window"
		}
	case dtype.Barrier:
		return "flags"
	}
	return ""
}

// onDevice returns the algorithm for ranks whose devices read each other's windows.
func onDevice(call Call, ranks int, devices topo.Devices) string {
	switch call.Coll {
	case dtype.AllReduce:
		if call.Bytes <= oneShotOnDevice(ranks, devices.Rate, devices.Word) {
			return "one_shot_window"
		}
		return "two_shot_window"
	case dtype.Barrier:
		return overWindows(call, ranks, false)
	}
	return "window"
}

// betweenHosts returns the algorithm for devices on several hosts: one without windows where these
// do not help.
func betweenHosts(call Call, on *topo.Group, wishes *Wishes) string {
	switch coll := call.Coll; {
	case !on.Even() || !on.Levels() || wishes.ordered(coll):
	case coll == dtype.AllReduce || coll == dtype.AllGather || coll == dtype.ReduceScatter:
		name := amongHosts(call, on, wishes)
		if strings.Contains(name, ".") { // devices know two levels
			name = overMessages(perHost(call, on), len(on.Hosts()))
		}
		return "hierarchical.window." + name
	}
	return overAll(call, on, wishes)
}

// perHost returns a call between hosts, each of which is one rank of it.
func perHost(call Call, on *topo.Group) Call {
	call.Bytes = call.Bytes / int64(on.Size()) * int64(len(on.Hosts()))
	return call
}

// amongHosts returns the algorithm between hosts, each of which is one rank of it: with two levels
// where they are at several sites.
func amongHosts(call Call, on *topo.Group, wishes *Wishes) string {
	call = perHost(call, on)
	name := bySites(call, on, overMessages(call, len(on.Hosts())))
	if !on.Has("rdma") {
		name = wishes.among(call, name)
	}
	return strings.TrimPrefix(name, "hierarchical.")
}

// farBytes is the size up to which hosts of several sites are levels: beyond it the bytes take
// longer than the distance, and a ring keeps all links busy. With 2 sites of 2 hosts at 10 ms, and
// ports of 1 Gbit/s, an all_reduce of 64 KiB took 6.8 ms, and 16 as a ring; 1 MiB 17 and 27, 4 MiB
// 83 and 56 (2026-11-29).
const farBytes = 1 << 20

// bySites returns the algorithm between hosts, each of which is one rank of it: usual if they are
// not at several sites that are levels.
func bySites(call Call, on *topo.Group, usual string) string {
	_, hosts, sites, even := on.Grid()
	switch call.Coll {
	case dtype.AllReduce:
		even = even || !on.Levels()
	case dtype.AllGather, dtype.ReduceScatter:
	default:
		return usual
	}
	if sites < 2 || hosts < 2 || !even || call.Bytes > farBytes {
		return usual
	}
	within, across := "ring", "direct"
	message := call.Bytes / int64(hosts)
	if small(hosts, message) {
		within = "direct"
	}
	if call.Coll == dtype.AllReduce && sites > 2 && !small(sites, message) {
		across = "two_shot"
	}
	return "hierarchical." + within + "." + across
}

// What a device is taken to cost, if nobody has measured it.
const (
	deviceOperation = 3e-6 // seconds, of a copy or kernel that a stream has enqueued: 2 to 4 µs
	deviceWord      = 1e-6 // of a word
	deviceRate      = 12e9 // bytes a second, if nobody has measured it: a slow bus (PCIe 3.0)
)

// MostInterpreted is the most bytes of a call that devices execute as one kernel of a few blocks,
// where they can: while it moves that much, at some ten GB/s, it takes no longer than the two or
// three operations (deviceOperation) that a call of that size has at least otherwise. It was
// not measured either.
const MostInterpreted = 64 << 10

// MostInPackets is the most bytes of a block that such a kernel moves in packets, which are twice
// as long as their data: so long as that takes less time than a signal behind the data would, of
// about a microsecond. It was not measured.
const MostInPackets = 8 << 10

// oneShotOnDevice returns the most bytes of an all_reduce for which devices read all operands at
// once. With n ranks, one_shot_window reads n·b bytes. two_shot_window reads b of its chunk's
// operands, and then (n-1)·b/n of the results of the others, with a copy and a kernel more, and
// 2·(n-1) words. So the first is better while the (n-1)²/n·b bytes that it reads more take less
// time than these.
func oneShotOnDevice(ranks int, rate, word float64) int64 {
	if ranks < 2 {
		return math.MaxInt64
	}
	if rate <= 0 {
		rate = deviceRate
	}
	if word <= 0 {
		word = deviceWord
	}
	n := float64(ranks)
	more := 2*deviceOperation + 2*(n-1)*word
	return int64(more * rate * n / ((n - 1) * (n - 1)))
}

// longReduce is the size above which ranks that share cores reduce over windows: the root's one
// pass over all windows is less work than messages and a pass for each. Shorter messages are
// better, since over windows a rank can run ahead of the root by two operations only.
const longReduce = 64 << 10

// tiny is the size up to which few ranks exchange whole vectors: with ranks of one host next to
// each other, only the last of the log n steps are between hosts.
const tiny = 4 << 10

// forwarded is the size up to which a block of an all_to_all goes through a rank of the sender's
// host: where messages to another host cost 20 µs each, one for all blocks of a host is worth an
// exchange of lengths and a copy of short blocks.
const forwarded = 32 << 10

// fewPieces is the number of slots that an operation over windows of hosts may take.
const fewPieces = 16

// overHosts returns the algorithm for several hosts that have several ranks each, "" where an
// algorithm without levels is better.
func overHosts(call Call, on *topo.Group, wishes *Wishes) string {
	ranks, bytes := on.Size(), call.Bytes
	if !on.Levels() || !on.Even() && call.Coll != dtype.AllReduce || wishes.ordered(call.Coll) {
		return ""
	}
	switch call.Coll {
	case dtype.AllReduce:
		if bytes <= tiny && ranks <= fewRanks && ranks&(ranks-1) == 0 && on.Even() && on.InOrder() {
			return "recursive_doubling"
		}
	case dtype.AllGather, dtype.ReduceScatter:
	case dtype.AllToAll:
		if ranks > manyRanks && on.InOrder() && bytes <= forwarded*int64(ranks) {
			return "hierarchical"
		}
		return ""
	default:
		return ""
	}
	inner := "direct"
	if on.Slot() > 0 && bytes <= fewPieces*int64(on.Slot()) {
		inner = "window"
	}
	return "hierarchical." + inner + "." + amongHosts(call, on, wishes)
}

// small reports whether a rank should send a message of this size to each other rank.
func small(ranks int, message int64) bool {
	return message <= smallMessage && message*int64(ranks-1) <= smallTotal
}
