package tune

import (
	"math"

	"github.com/goccl/goccl/ccl/dtype"
)

// Bounds of small messages. A direct exchange between all ranks takes fewer steps than a ring. It
// is better until the bytes that a rank has to send, or to hold for one message, cost more than the
// steps.
const (
	smallMessage = 32 << 10 // one message
	smallTotal   = 96 << 10 // the messages that a rank sends to all others: three small messages
)

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

// Rules are what the choice depends on besides the call: the user's wishes and the properties of
// the group. They are the same on all ranks.
type Rules struct {
	// Override names the algorithm of a collective. It takes precedence over everything else.
	Override map[dtype.Collective]string
	// Table is tried before the library's table; it may be nil.
	Table *Table
	// Determinism 3 or 4 allows only algorithms that reduce in rank order (level 4 of package
	// verify). They give the same bits at every size, so the choice among them may depend on the
	// size.
	Determinism int
	// Oversubscribed means that ranks outnumber the cores that they share.
	Oversubscribed bool
	// Hosts is the number of hosts, whose ranks share memory; 0 if no ranks share memory.
	Hosts int
	// Even means that all hosts have the same number of ranks.
	Even bool
	// InOrder means that the ranks of each host are consecutive.
	InOrder bool
	// Windows means that the ranks read each other's windows.
	Windows bool
	// Device means that devices execute the plan: windows are all that they have.
	Device bool
	// DeviceRate is the bytes a second at which the slowest device reads windows of its peers, 0 if
	// nobody has measured it.
	DeviceRate float64
	// DeviceWord is what the slowest stream takes for a word, in seconds, 0 if nobody has measured
	// it.
	DeviceWord float64
	// HostSlot is the size of a slot of the windows that the ranks of each host read, 0 for none.
	HostSlot int
}

// hosts returns the number of hosts of a group of the given number of ranks.
func (r *Rules) hosts(ranks int) int {
	if r.Hosts == 0 {
		return ranks
	}
	return r.Hosts
}

// Choose returns the name of the algorithm for a collective; algo.Find knows it. bytes is the size
// of a block where a rank has one block on both sides (all_reduce, reduce, broadcast), and of all
// blocks together where it has a block for each rank. All ranks must call Choose with the same
// values. Choose allocates nothing.
//
// An override comes first, then the first row that fits in rules.Table, then the first row that
// fits in the library's table. For calls that no row fits:
//
//	all_reduce                  direct while a message, of bytes, is small; else ring.
//	all_gather, reduce_scatter  direct while a message, of bytes/ranks, is small; else ring.
//	all_to_all                  linear up to 8 ranks, pairwise for more
//	broadcast, reduce           binomial
//	scatter, gather             linear
//	barrier                     dissemination
//
// On more than 16 ranks all_reduce is recursive_doubling up to 8 KiB, and rabenseifner while
// bytes/ranks is at most 8 KiB; all_gather is then bruck and reduce_scatter pat.
//
// A message is small up to 32 KiB, if all messages that a rank sends are at most 96 KiB together.
// Where Rules.Determinism asks for rank order, all_reduce is direct or two_shot, reduce_scatter is
// direct and reduce is flat.
//
// Several hosts, of several ranks each, are used as levels unless Rules.Determinism asks for rank
// order; only all_reduce is for hosts of unequal size:
//
//	all_reduce                  recursive_doubling up to 4 KiB on up to 8 ranks, if they are a power
//	                            of two and those of a host consecutive; else
//	                            hierarchical.direct.X, with X as among so many ranks as there are
//	                            hosts, with messages of bytes/(ranks of a host)
//	all_gather, reduce_scatter  the same, with messages of bytes/ranks
//	all_to_all                  on more than 16 ranks, those of a host consecutive, hierarchical up
//	                            to 32 KiB for each block
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
// Rules.Determinism:
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
// reductions where Rules.Determinism asks for rank order. Everything else has no plan over windows.
func Choose(coll dtype.Collective, ranks int, bytes int64, rules Rules) (name string) {
	if name, ok := rules.Override[coll]; ok {
		return name
	}
	if rules.Device && rules.Hosts < 2 {
		return onDevice(coll, ranks, bytes, &rules)
	}
	if rules.Device {
		return betweenHosts(coll, ranks, bytes, &rules)
	}
	if name := rules.Table.choose(coll, ranks, bytes, &rules); name != "" {
		return name
	}
	if name := defaultTable.choose(coll, ranks, bytes, &rules); name != "" {
		return name
	}
	return unmeasured(coll, ranks, bytes, &rules)
}

// Rows calls use with each row that a group of the given number of ranks may use, in the order in
// which rows are tried.
func (r Rules) Rows(ranks int, use func(Row)) {
	r.Table.of(ranks, &r, use)
	defaultTable.of(ranks, &r, use)
}

// unmeasured returns the choice for calls that no row fits.
func unmeasured(coll dtype.Collective, ranks int, bytes int64, rules *Rules) string {
	if rules.Windows {
		if name := overWindows(coll, ranks, bytes, rules.Oversubscribed); name != "" {
			return name
		}
	}
	if name := overHosts(coll, ranks, bytes, rules); name != "" {
		return name
	}
	if rules.Determinism > 2 && coll.Reduces() {
		if coll == dtype.AllReduce && !small(ranks, bytes) {
			return "two_shot"
		}
		if coll == dtype.Reduce {
			return "flat"
		}
		return "direct"
	}
	switch coll {
	case dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter:
		return overMessages(coll, ranks, bytes)
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

// overMessages returns the algorithm among ranks, or among hosts, for vectors of so many bytes.
func overMessages(coll dtype.Collective, ranks int, bytes int64) string {
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
func overWindows(coll dtype.Collective, ranks int, bytes int64, oversubscribed bool) string {
	switch coll {
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
func onDevice(coll dtype.Collective, ranks int, bytes int64, rules *Rules) string {
	switch coll {
	case dtype.AllReduce:
		if bytes <= oneShotOnDevice(ranks, rules.DeviceRate, rules.DeviceWord) {
			return "one_shot_window"
		}
		return "two_shot_window"
	case dtype.Barrier:
		return overWindows(coll, ranks, bytes, false)
	}
	return "window"
}

// betweenHosts returns the algorithm for devices on several hosts: one without windows where these
// do not help.
func betweenHosts(coll dtype.Collective, ranks int, bytes int64, rules *Rules) string {
	inOrder := rules.Determinism > 2 && coll.Reduces()
	switch {
	case !rules.Even || rules.Hosts == ranks || inOrder:
	case coll == dtype.AllReduce || coll == dtype.AllGather || coll == dtype.ReduceScatter:
		return "hierarchical.window." + overMessages(coll, rules.Hosts, bytes/int64(ranks)*int64(rules.Hosts))
	}
	without := *rules
	without.Hosts, without.Windows = 0, false
	return unmeasured(coll, ranks, bytes, &without)
}

// What a device is taken to cost, if nobody has measured it.
const (
	deviceOperation = 3e-6 // seconds, of a copy or kernel that a stream has enqueued: 2 to 4 µs
	deviceWord      = 1e-6 // of a word
	deviceRate      = 12e9 // bytes a second, if nobody has measured it: a slow bus (PCIe 3.0)
)

// MostInterpreted is the most bytes of a call that devices execute as one kernel of a few blocks,
// where they can: while it moves that much, at some ten GB/s, it takes no longer than the two or
// three operations (deviceOperation) that a call of so many bytes has at least otherwise. It was
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
func overHosts(coll dtype.Collective, ranks int, bytes int64, rules *Rules) string {
	hosts := rules.hosts(ranks)
	if hosts < 2 || hosts == ranks || !rules.Even && coll != dtype.AllReduce ||
		rules.Determinism > 2 && coll.Reduces() {
		return ""
	}
	switch coll {
	case dtype.AllReduce:
		if bytes <= tiny && ranks <= fewRanks && ranks&(ranks-1) == 0 && rules.Even && rules.InOrder {
			return "recursive_doubling"
		}
	case dtype.AllGather, dtype.ReduceScatter:
	case dtype.AllToAll:
		if ranks > manyRanks && rules.InOrder && bytes <= forwarded*int64(ranks) {
			return "hierarchical"
		}
		return ""
	default:
		return ""
	}
	inner := "direct"
	if rules.HostSlot > 0 && bytes <= fewPieces*int64(rules.HostSlot) {
		inner = "window"
	}
	return "hierarchical." + inner + "." + overMessages(coll, hosts, bytes/int64(ranks)*int64(hosts))
}

// small reports whether a rank should send a message of this size to each other rank.
func small(ranks int, message int64) bool {
	return message <= smallMessage && message*int64(ranks-1) <= smallTotal
}
