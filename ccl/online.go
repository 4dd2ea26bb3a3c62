package ccl

import (
	"cmp"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/tune/online"
	"github.com/goccl/goccl/ccl/verify"
)

// onlineWord is the value of GOCCL_TUNE that asks for trials; a file may follow, behind a comma.
const onlineWord = "online"

// tuning returns what GOCCL_TUNE asks for: the rows of a file, and trials.
func (o *GroupOptions) tuning() (file string, trials bool) {
	if o.Tune == onlineWord {
		return "", true
	}
	if file, also := strings.CutPrefix(o.Tune, onlineWord+","); also {
		return strings.TrimSpace(file), true
	}
	return o.Tune, false
}

func checkTune(v string) error {
	if file, trials := (&GroupOptions{Tune: v}).tuning(); trials && v != onlineWord && file == "" {
		return want("online, FILE or online,FILE")
	}
	return nil
}

// trials is what a planner needs to try algorithms. It is an exec.Trials, which the driver of the
// group asks.
type trials struct {
	*planner
	tuner    *online.Tuner
	channels int                                 // for plans
	trial    bool                                // the last Turn asked for one
	write    func([]tune.Row)                    // keeps what has won; nil for nowhere
	winners  [dtype.Barrier + 1][]*online.Result // not those where the usual choice has won
}

// tryOnline has a planner try algorithms. Its group is settled, and has so many channels.
func (p *planner) tryOnline(channels int) {
	p.trials = &trials{planner: p, channels: channels}
	p.trials.tuner = online.New(p.trials.offer, p.trials.settled)
}

// Turn is that of exec.Trials.
func (t *trials) Turn(coll dtype.Collective, bytes int64, number uint64) exec.Turn {
	if last := &t.last[coll]; last.called && last.bytes == bytes && last.settled {
		return exec.Turn{Algorithm: last.algorithm, Until: online.Never}
	}
	turn := t.tuner.Turn(coll, bytes, t.usual(coll, bytes), number)
	t.trial = turn.Trial
	switch {
	case turn.Trial:
		t.told.trying(coll, bytes, turn.Algorithm)
	case !turn.Agree:
		t.Choose(coll, bytes)
		t.last[coll].settled = turn.Until == online.Never
	}
	return exec.Turn(turn)
}

// Took is that of exec.Trials.
func (t *trials) Took(nanoseconds uint64) { t.tuner.Took(nanoseconds) }

// Drop is that of exec.Trials.
func (t *trials) Drop() bool { return t.tuner.Drop() }

// Times is that of exec.Trials.
func (t *trials) Times() []uint64 { return t.tuner.Times() }

// Agree is that of exec.Trials.
func (t *trials) Agree(largest []uint64) { t.tuner.Agree(largest) }

func (t *trials) settled(r *online.Result) {
	t.last[r.Coll] = choice{}
	if r.Winner > 0 {
		t.winners[r.Coll] = append(t.winners[r.Coll], r)
	}
	t.told.tried(r)
	if t.write != nil && r.Winner > 0 {
		t.write(t.rows())
	}
}

// Limits of what is tried.
const (
	mostTried = 64  // ranks; plans for more are proven before they run, which takes seconds
	nearBy    = 1.5 // times as long as the best prediction
)

// offer is online.Offer. A wish, a user's plan and a row that the user gave are not questioned.
func (t *trials) offer(coll dtype.Collective, bytes int64, usual int) (others []int, after uint64) {
	ranks, first := t.group.Size(), usual-len(t.users)
	if first < 0 || !tune.Sized(coll) || bytes <= 0 || ranks < 2 || ranks > mostTried {
		return nil, 0
	}
	call := tune.Call{Coll: coll, Bytes: bytes}
	name, why := tune.Explain(call, t.group, &t.wishes)
	if why == tune.Wished || why == tune.InTable {
		return nil, 0
	}
	for _, other := range t.near(call, name) {
		i := t.find(coll, other)
		if i < 0 || i == usual || slices.Contains(others, i) || !t.alike(&t.names[first], &t.names[i-len(t.users)]) {
			continue
		}
		others = append(others, i)
	}
	return others[:min(len(others), online.MostOthers)], t.after(bytes)
}

// alike reports whether one algorithm may be tried in place of another: the group can run it, and a
// sum has the same bits, unless the user has given that up.
func (t *trials) alike(usual, other *algo.Algorithm) bool {
	coll, ranks := usual.Coll, t.group.Size()
	ordered := usual.Level >= int(verify.RankOrder) && other.Level >= int(verify.RankOrder)
	bits := !coll.Reduces() || ordered ||
		t.wishes.Determinism < int(verify.EveryRun) || t.wishes.Determinism == int(verify.EveryRun) && ranks == 2
	if !bits {
		return false
	}
	made, err := other.OnHosts(plan.Spec{Coll: coll, Ranks: ranks}, t.group)
	if err != nil || made.Chans > t.channels || made.Needs&plan.Counts != 0 {
		return false
	}
	return made.Needs&plan.Gets == 0 || t.group.Windows() || other.Grid != nil && t.group.Slot() > 0
}

// near returns the names of candidates, best first: what is predicted to be nearly as fast as the
// best, if the ranks know what the network costs, and otherwise the neighbours of an algorithm.
func (t *trials) near(call tune.Call, name string) (names []string) {
	hosts := len(t.group.Hosts())
	rules := t.wishes
	rules.Among = nil
	ruled := tune.Choose(call, t.group, &rules)
	switch levels := strings.LastIndexByte(name, '.'); {
	case levels > 0 && strings.LastIndexByte(ruled, '.') == levels:
		call.Bytes = call.Bytes / int64(t.group.Size()) * int64(hosts)
		for _, outer := range t.nearAmong(call, hosts, name[levels+1:], ruled[levels+1:]) {
			names = append(names, name[:levels+1]+outer)
		}
		return names
	case hosts == t.group.Size() && levels < 0:
		return t.nearAmong(call, hosts, name, ruled)
	}
	return t.nearRows(call, name)
}

func (t *trials) nearAmong(call tune.Call, ranks int, name, ruled string) []string {
	if t.chooser != nil && !t.group.Has("rdma") {
		if names := t.chooser.Near(call, ranks, ruled, nearBy); names != nil {
			return names
		}
	}
	return besides(shortFirst[call.Coll], name)
}

// shortFirst are algorithms between hosts, those for short messages first.
var shortFirst = map[dtype.Collective][]string{
	dtype.AllReduce:     {"recursive_doubling", "direct", "two_shot", "rabenseifner", "ring"},
	dtype.AllGather:     {"bruck", "direct", "ring", "pairwise"},
	dtype.ReduceScatter: {"pat", "direct", "ring", "pairwise"},
	dtype.Broadcast:     {"flat", "binomial", "double_binary_tree", "chain"},
	dtype.Reduce:        {"flat", "binomial", "double_binary_tree", "chain"},
}

// besides returns the neighbours of a name in a list.
func besides(list []string, name string) (names []string) {
	at := slices.Index(list, name)
	if at < 0 {
		return list
	}
	if at+1 < len(list) {
		names = append(names, list[at+1])
	}
	if at > 0 {
		names = append(names, list[at-1])
	}
	return names
}

// nearRows returns the algorithms of the rows whose sizes are nearest.
func (t *trials) nearRows(call tune.Call, name string) (names []string) {
	type row struct {
		name  string
		ratio float64
	}
	var rows []row
	below := int64(1)
	t.wishes.Rows(t.group, func(r tune.Row) {
		if r.Coll != call.Coll {
			return
		}
		// A row begins behind the one before it.
		ratio := max(1, float64(call.Bytes)/float64(r.Bytes), float64(below)/float64(call.Bytes))
		below = max(below, r.Bytes)
		rows = append(rows, row{r.Algorithm, ratio})
	})
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.ratio, b.ratio) })
	for _, r := range rows {
		if r.name != name && r.ratio <= nearSizes {
			names = append(names, r.name)
		}
	}
	return names
}

// nearSizes is how many times longer, or shorter, the calls of a row may be whose algorithm is
// tried.
const nearSizes = 8

// Besides slower calls trials cost that two plans are made, and that the ranks agree. The calls
// before have taken a hundred times as long, by a guess at what a call takes at least.
const (
	worthTrials = 10e-3 // seconds
	hostCall    = 1e-6
	hostRate    = 5e9 // bytes a second
	networkCall = 50e-6
	networkRate = 1e9
)

// after returns how many calls of the group there are before the first trial of a class.
func (t *trials) after(bytes int64) uint64 {
	seconds := networkCall + float64(bytes)/networkRate
	if len(t.group.Hosts()) == 1 {
		seconds = hostCall + float64(bytes)/hostRate
	}
	return uint64(max(worthTrials/seconds, warm))
}

// warm is the least number of calls before the first trial: the first ones make connections.
const warm = 3

// exec returns what a Comm asks about trials.
func (t *trials) exec() exec.Trials {
	if t == nil {
		return nil // and not an interface of a nil pointer
	}
	return t
}
