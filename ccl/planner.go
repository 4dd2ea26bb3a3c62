package ccl

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/tune/predicted"
	"github.com/goccl/goccl/ccl/verify"
)

// planner combines the users' plans, the catalogue (algo) and the choice (tune) for package exec.
// The number of an algorithm is its index in users or, behind those, in names.
type planner struct {
	wishes tune.Wishes
	group  *topo.Group
	always bool   // each plan is proven before its first use
	costs  string // where what the network costs comes from, for people
	users  []ownPlan
	names  []algo.Algorithm // their numbers follow those of users
	last   [dtype.Barrier + 1]choice
	told   *journal                         // nil for none
	warn   func(format string, args ...any) // nil if no warnings are wanted

	chooser *predicted.Chooser // nil if the ranks do not know what the network costs
	trials  *trials            // nil for none (GOCCL_TUNE=online)
}

// choice is what Choose last returned for a collective: calls of one size come one after the other.
type choice struct {
	called    bool
	until     uint64 // online.Turn.Until
	bytes     int64
	algorithm int
}

var catalogue = algo.All // tests put a wrong algorithm into it

func newPlanner(opts *GroupOptions, users []ownPlan, group *topo.Group) *planner {
	p := &planner{
		wishes: tune.Wishes{Override: opts.override(), Determinism: opts.Determinism},
		group:  group, always: opts.Verify == "always", users: users, names: slices.Clone(catalogue()),
	}
	if p.chooser = predicted.OfGroup(group, exec.PlanChannels); p.chooser != nil {
		p.wishes.Among = p.chooser.Choose
	}
	return p
}

// twin returns a planner that makes the same choices for a group, for another thread.
func (p *planner) twin(group *topo.Group) *planner {
	return &planner{wishes: p.wishes, group: group, always: p.always, users: p.users, names: slices.Clone(p.names)}
}

// needs returns what the links of a group must have for every plan that may be chosen: the number
// of channels for messages, and whether peers read windows.
func (p *planner) needs() (channels int, windows bool) {
	channels = exec.PlanChannels
	ranks := p.group.Size()
	add := func(x *plan.Plan) {
		channels = max(channels, x.Chans)
		windows = windows || x.Needs&plan.Gets != 0
	}
	for _, u := range p.users {
		if u.Spec.Ranks == ranks {
			add(u.Plan)
		}
	}
	for coll, name := range p.wishes.Override {
		if made, _, err := p.make(p.find(coll, name), plan.Spec{Coll: coll, Ranks: ranks}); err == nil {
			add(made)
		}
	}
	p.rows(func(x *plan.Plan) { channels = max(channels, x.Chans) })
	return channels, windows
}

// rows calls use with the plan of each row of the tables that may apply to the group if it has
// windows.
func (p *planner) rows(use func(*plan.Plan)) {
	with := p.group.WithSlot(leastSlot)
	p.wishes.Rows(with, func(r tune.Row) {
		i := p.find(r.Coll, r.Algorithm)
		if _, overridden := p.wishes.Override[r.Coll]; overridden || i < 0 {
			return
		}
		spec := plan.Spec{Coll: r.Coll, Ranks: with.Size()}
		if made, err := p.names[i-len(p.users)].OnHosts(spec, with); err == nil {
			use(made)
		}
	})
}

// Choose returns the number of the algorithm for a call. Only one thread at a time calls it, the
// driver of the group.
func (p *planner) Choose(coll dtype.Collective, bytes int64) int {
	last := &p.last[coll]
	if !last.called || last.bytes != bytes {
		*last = choice{called: true, bytes: bytes, algorithm: p.choose(coll, bytes)}
		p.told.chosen(coll, bytes, last.algorithm)
	}
	return last.algorithm
}

func (p *planner) choose(coll dtype.Collective, bytes int64) int {
	usual := p.usual(coll, bytes)
	if p.trials != nil {
		return p.trials.tuner.Choice(coll, bytes, usual)
	}
	return usual
}

// usual is choose without what trials have found.
func (p *planner) usual(coll dtype.Collective, bytes int64) int {
	for i, u := range p.users {
		if u.Spec.Coll == coll && u.Spec.Ranks == p.group.Size() &&
			bytes >= u.MinBytes && (u.MaxBytes == 0 || bytes <= u.MaxBytes) {
			return i
		}
	}
	return p.find(coll, tune.Choose(tune.Call{Coll: coll, Bytes: bytes}, p.group, &p.wishes))
}

// find returns the number of an algorithm of the catalogue, or -1 if there is none. Members of a
// family, like hierarchical.ring.direct, get their numbers when they are first found.
func (p *planner) find(coll dtype.Collective, name string) int {
	for i := range p.names {
		if p.names[i].Coll == coll && p.names[i].Name == name {
			return len(p.users) + i
		}
	}
	a, err := algo.Find(coll, name)
	if err != nil {
		return -1
	}
	p.names = append(p.names, a)
	return len(p.users) + len(p.names) - 1
}

// mostBytes is larger than any call.
const mostBytes = 1 << 44

// span returns the range of sizes around bytes for which choose returns the same algorithm. It
// tries the sizes where a user's plan or a row of a table begins or ends, and all powers of two;
// then it bisects between the last size with the same algorithm and the first with another.
func (p *planner) span(coll dtype.Collective, bytes int64) (low, high int64) {
	points := []int64{0, mostBytes}
	for b := int64(1); b < mostBytes; b *= 2 {
		points = append(points, b)
	}
	for _, u := range p.users {
		if u.Spec.Coll == coll {
			points = append(points, u.MinBytes-1, u.MinBytes, u.MaxBytes, u.MaxBytes+1)
		}
	}
	p.wishes.Rows(p.group, func(r tune.Row) {
		if r.Coll == coll {
			points = append(points, r.Bytes, r.Bytes+1)
		}
	})
	slices.Sort(points)
	algorithm := p.choose(coll, bytes)
	edge := func(points iter.Seq2[int, int64], beyond func(int64) bool) int64 {
		same := bytes
		for _, other := range points {
			if other < 0 || other > mostBytes || !beyond(other) {
				continue
			}
			if p.choose(coll, other) == algorithm {
				same = other
				continue
			}
			for other-same > 1 || same-other > 1 {
				if half := same + (other-same)/2; p.choose(coll, half) == algorithm {
					same = half
				} else {
					other = half
				}
			}
			break
		}
		return same
	}
	low = edge(slices.Backward(points), func(b int64) bool { return b < bytes })
	high = edge(slices.All(points), func(b int64) bool { return b > bytes })
	return low, high
}

// Make makes a plan. Where it must be proven, Make first proves it in the form that runs
// (prove.go).
func (p *planner) Make(algorithm int, spec plan.Spec) (*plan.Plan, error) {
	made, own, err := p.make(algorithm, spec)
	if err == nil && mustProve(own != "", p.always, spec.Ranks) {
		err = p.prove(made, own)
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}

// make is Make without the proof. own is the file of a user's plan, or "".
func (p *planner) make(algorithm int, spec plan.Spec) (made *plan.Plan, own string, err error) {
	if algorithm >= 0 && algorithm < len(p.users) {
		if u := p.users[algorithm]; u.Spec.Root == spec.Root {
			p.told.made(algorithm, spec)
			return u.Plan, u.file, algo.OnOneHost(u.Plan, p.group)
		}
		// A plan from a file is for one root. Other roots get the algorithm that they would get
		// without the file for the smallest size of that plan: one program serves all sizes.
		call := tune.Call{Coll: spec.Coll, Bytes: p.users[algorithm].MinBytes}
		algorithm = p.find(spec.Coll, tune.Choose(call, p.group, &p.wishes))
	}
	if algorithm < 0 {
		return nil, "", fmt.Errorf("no algorithm for %v", spec)
	}
	if p.trials == nil || !p.trials.trial {
		p.told.made(algorithm, spec)
	}
	made, err = p.names[algorithm-len(p.users)].OnHosts(spec, p.group)
	return made, "", err
}

// verified holds the texts of plans that this process has verified, because files are read again
// for every group.
var verified sync.Map // string → *plan.Plan

// loadPlans reads and verifies the plans of the files that GOCCL_PLAN names. Ranks compare
// contents.
func loadPlans(opts *GroupOptions) (plans []ownPlan, contents string, err error) {
	for _, file := range opts.planFiles() {
		data, err := readFile("GOCCL_PLAN", file, plan.MaxFileSize)
		if err != nil {
			return nil, "", err
		}
		p, err := loadPlan(data, opts.Determinism, opts.FileProof())
		if err != nil {
			return nil, "", fault.Wrap(fault.Invalid, err, "GOCCL_PLAN=%s is refused", file)
		}
		plans = append(plans, ownPlan{p, file})
		contents += fmt.Sprintf(" %s:%016x", p.Name, p.Hash())
	}
	return plans, strings.TrimSpace(contents), nil
}

// loadTable reads the table of the file that GOCCL_TUNE names, or returns nil if it names none.
// Ranks compare asks: a hash of the rows, and whether there are trials.
func loadTable(opts *GroupOptions) (table *tune.Table, asks string, err error) {
	file, trials := opts.Tuning()
	if trials {
		asks = onlineWord
	}
	if file == "" {
		return nil, asks, nil
	}
	data, err := readFile("GOCCL_TUNE", file, tune.MaxTable)
	if err != nil {
		return nil, "", err
	}
	if table, err = tune.ParseTable(data); err != nil {
		return nil, "", fault.Wrap(fault.Invalid, err, "GOCCL_TUNE=%s is refused", opts.Tune)
	}
	return table, strings.TrimSpace(asks + " " + table.Hash()), nil
}

// readFile reads a file of at most limit bytes that an option names.
func readFile(option, file string, limit int) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s", option)
	}
	if info.Size() > int64(limit) || !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, "%s=%s: want a file of at most %d bytes", option, file, limit)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s", option)
	}
	return data, nil
}

func loadPlan(data []byte, determinism int, limits verify.Options) (*plan.Plan, error) {
	key := fmt.Sprintf("%d %s", determinism, data)
	if p, ok := verified.Load(key); ok {
		return p.(*plan.Plan), nil
	}
	p, err := plan.Load(data)
	if err != nil {
		return nil, err
	}
	if _, err := verify.Accept(p, determinism, limits); err != nil {
		return nil, err
	}
	verified.Store(key, p)
	return p, nil
}
