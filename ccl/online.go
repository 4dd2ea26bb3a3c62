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
	"github.com/goccl/goccl/ccl/tune/predicted"
	"github.com/goccl/goccl/ccl/verify"
)

// onlineWord is the value of GOCCL_TUNE that asks for trials; a file may follow, behind a comma.
const onlineWord = "online"

// Tuning returns what GOCCL_TUNE asks for: the rows of a file, if it names one, and trials.
func (o *GroupOptions) Tuning() (file string, trials bool) {
	if o.Tune == onlineWord {
		return "", true
	}
	if file, also := strings.CutPrefix(o.Tune, onlineWord+","); also {
		return strings.TrimSpace(file), true
	}
	return o.Tune, false
}

func checkTune(v string) error {
	if file, trials := (&GroupOptions{Tune: v}).Tuning(); trials && v != onlineWord && file == "" {
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
	winners  [dtype.Barrier + 1][]*online.Result // of candidates that have won
}

// tryOnline has a planner try algorithms. Its group is settled, and has so many channels.
func (p *planner) tryOnline(channels int) {
	p.trials = &trials{planner: p, channels: channels}
	p.trials.tuner = online.New(p.trials.offer, p.trials.ended)
}

// Turn is that of exec.Trials.
func (t *trials) Turn(coll dtype.Collective, bytes int64, number uint64) exec.Turn {
	last := &t.last[coll]
	if last.called && last.bytes == bytes && number < last.until {
		return exec.Turn{Algorithm: last.algorithm, Until: last.until}
	}
	turn := t.tuner.Turn(coll, bytes, t.usual(coll, bytes), number)
	t.trial = turn.Trial
	switch {
	case turn.Trial:
		t.told.trying(coll, bytes, turn.Algorithm)
	case !turn.Agree:
		t.Choose(coll, bytes)
		last.until = turn.Until
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
func (t *trials) Agree(largest []uint64, nanoseconds uint64) { t.tuner.Agree(largest, nanoseconds) }

func (t *trials) ended(r *online.Result) {
	if r.Won {
		t.last[r.Coll] = choice{}
		t.winners[r.Coll] = append(t.winners[r.Coll], r)
	}
	t.told.tried(r)
	if r.Won && t.write != nil {
		t.write(t.rows())
	}
}

// Limits of what is tried: plans for more ranks are proven before they run, which takes seconds.
const (
	mostTried  = 64 // ranks
	mostOthers = 3  // candidates of a class
)

// offer is online.Offer. A wish, a user's plan and a row that the user gave are not questioned.
func (t *trials) offer(coll dtype.Collective, bytes int64, usual int) (all []online.Candidate) {
	ranks, first := t.group.Size(), usual-len(t.users)
	if first < 0 || !tune.Sized(coll) || bytes <= 0 || ranks < 2 || ranks > mostTried {
		return nil
	}
	call := tune.Call{Coll: coll, Bytes: bytes}
	name, why := tune.Explain(call, t.group, &t.wishes)
	if why == tune.Wished || why == tune.InTable {
		return nil
	}
	var each []candidate
	near, seconds := t.near(call, name)
	for _, c := range near {
		c.number = t.find(coll, c.name)
		same := func(other candidate) bool { return other.number == c.number }
		if c.number >= 0 && c.number != usual && !slices.ContainsFunc(each, same) &&
			t.alike(&t.names[first], &t.names[c.number-len(t.users)]) {
			each = append(each, c)
		}
	}
	each = each[:min(len(each), mostOthers)]
	slices.SortStableFunc(each, func(a, b candidate) int { return cmp.Compare(a.times, b.times) })
	lost := 0.0
	for _, c := range each {
		lost += online.Lost(c.times)
		all = append(all, online.Candidate{Algorithm: c.number, After: t.after(bytes, seconds, len(all)+1, lost)})
	}
	return all
}

// alike reports whether one algorithm may be tried in place of another: the group can run it, and a
// sum has the same bits, unless the user has given that up.
func (t *trials) alike(usual, other *algo.Algorithm) bool {
	coll, ranks, asked := usual.Coll, t.group.Size(), verify.Level(t.wishes.Determinism)
	ordered := usual.Level >= int(verify.RankOrder) && other.Level >= int(verify.RankOrder)
	if coll.Reduces() && !ordered && asked >= verify.EveryRun && (asked > verify.EveryRun || ranks > 2) {
		return false
	}
	made, err := other.OnHosts(plan.Spec{Coll: coll, Ranks: ranks}, t.group)
	if err != nil || made.Chans > t.channels || made.Needs&plan.Counts != 0 {
		return false
	}
	return made.Needs&plan.Gets == 0 || t.group.Windows() || other.Grid != nil && t.group.Slot() > 0
}

// candidate is an algorithm that may be tried, and how many times as long as the usual choice it is
// thought to take.
type candidate struct {
	name   string
	times  float64
	number int
}

// near returns the candidates, best first, and what a call with the usual choice is predicted to
// take, or 0.
func (t *trials) near(call tune.Call, name string) (all []candidate, seconds float64) {
	hosts := len(t.group.Hosts())
	rules := t.wishes
	rules.Among = nil
	ruled := tune.Choose(call, t.group, &rules)
	switch levels := strings.LastIndexByte(name, '.'); {
	case len(t.group.Sites()) > 1: // some choices have a level more than others
	case levels > 0 && strings.LastIndexByte(ruled, '.') == levels:
		call.Bytes = call.Bytes / int64(t.group.Size()) * int64(hosts)
		all, seconds = t.nearAmong(call, name[levels+1:], ruled[levels+1:])
		for i := range all {
			all[i].name = name[:levels+1] + all[i].name
		}
		return all, seconds
	case hosts == t.group.Size() && levels < 0:
		return t.nearAmong(call, name, ruled)
	}
	return t.nearSizes(call, name), 0
}

// A candidate that nobody has measured or predicted is thought to take unknown times as long as the
// usual choice. Predictions are believed within bounds: those of algorithms that send to several
// ranks at once are off by 1.25 and more, and costs may be wrong.
const (
	unknown    = 1.5
	leastTimes = 1.25
	mostTimes  = 2.5
)

// nearAmong returns the candidates between ranks that are hosts of their own: what the rules say,
// if a prediction has overruled them, the best by the predictions, and, since the costs may be
// wrong, plain ones.
func (t *trials) nearAmong(call tune.Call, name, ruled string) (all []candidate, seconds float64) {
	names, times := []string{ruled}, map[string]float64{}
	if t.chooser != nil && !t.group.Has("rdma") {
		predictions := t.chooser.Predictions(call, ruled)
		own := slices.IndexFunc(predictions, func(p predicted.Prediction) bool { return p.Name == name })
		if own >= 0 {
			seconds = predictions[own].Seconds
			for i, p := range predictions {
				times[p.Name] = min(max(p.Seconds/seconds, leastTimes), mostTimes)
				if i < 2 {
					names = append(names, p.Name)
				}
			}
		}
	}
	plain := plainShort
	if call.Bytes > longCall {
		plain = plainLong
	}
	for _, each := range append(names, plain[call.Coll]...) {
		if each != name {
			all = append(all, candidate{name: each, times: cmp.Or(times[each], unknown)})
		}
	}
	return all, seconds
}

// Algorithms between hosts that are good on most networks: for short calls, in which steps count,
// and for long ones, in which bytes do.
var (
	plainShort = map[dtype.Collective][]string{
		dtype.AllReduce: {"recursive_doubling", "direct"}, dtype.AllGather: {"direct", "bruck"},
		dtype.ReduceScatter: {"direct", "pat"}, dtype.Broadcast: {"binomial", "flat"},
		dtype.Reduce: {"binomial", "flat"},
	}
	plainLong = map[dtype.Collective][]string{
		dtype.AllReduce: {"ring", "two_shot"}, dtype.AllGather: {"ring", "pairwise"},
		dtype.ReduceScatter: {"ring", "pairwise"}, dtype.Broadcast: {"chain", "double_binary_tree"},
		dtype.Reduce: {"chain", "double_binary_tree"},
	}
)

// plainInHost are the algorithms within a host that are good on most machines.
var plainInHost = map[dtype.Collective][]string{
	dtype.AllReduce: {"one_shot_window", "two_shot_window"}, dtype.AllGather: {"window", "direct"},
	dtype.ReduceScatter: {"window", "direct"}, dtype.Broadcast: {"window", "binomial"},
	dtype.Reduce: {"window", "binomial"},
}

// longCall is the size from which on the bytes of a call count.
const longCall = 32 << 10

// nearSizes returns the choices for sizes nearby, most of which were measured, and plain ones.
func (t *trials) nearSizes(call tune.Call, name string) (all []candidate) {
	var names []string
	for factor := int64(2); factor <= mostFactor; factor *= 2 {
		for _, bytes := range []int64{call.Bytes * factor, call.Bytes / factor} {
			names = append(names, tune.Choose(tune.Call{Coll: call.Coll, Bytes: bytes}, t.group, &t.wishes))
		}
	}
	for _, each := range append(names, plainInHost[call.Coll]...) {
		if each != name {
			all = append(all, candidate{name: each, times: unknown})
		}
	}
	return all
}

// mostFactor is how many times longer, or shorter, sizes nearby may be.
const mostFactor = 8

// Trials cost calls that are slower, and something else for each candidate: in a host its plan is
// made, between hosts it makes connections, which are slow at first (on ports of 1 Gbit/s the first
// calls took 5 to 20 ms longer, 2026-11-29). Calls before them have taken worth times as long.
const (
	hostTrial    = 50e-6 // seconds
	hostCall     = 1e-6  // of a call, at least
	hostRate     = 5e9   // bytes a second
	networkTrial = 10e-3
	networkCall  = 50e-6
	networkRate  = 1e9
)

var worth = 100.0 // tests have trials sooner

// after returns how many calls of the group there are, after the first of a class, before some
// candidates are tried, which are thought to lose the time of so many calls. seconds is what a call
// is predicted to take, 0 if that is not known.
func (t *trials) after(bytes int64, seconds float64, candidates int, lost float64) uint64 {
	each := networkTrial
	switch {
	case len(t.group.Hosts()) == 1:
		each, seconds = hostTrial, hostCall+float64(bytes)/hostRate
	case seconds == 0:
		seconds = networkCall + float64(bytes)/networkRate
	}
	return uint64(max(warm, worth*(float64(candidates)*each/seconds+lost)))
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
