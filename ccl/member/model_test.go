package member

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

// The model explores every order in which the ranks of a group write and read records, with faults:
// a process dies and another one takes its place, the store is cut off in the middle of an
// operation, the time of a rank runs out. Failed attempts are made again. In all states what has
// met must be one group, and once no more faults happen, all must meet.

// zero is when the model begins. Its time only goes on when a process dies, by an hour; an attempt
// is late only where the model says so.
var zero = time.Unix(1e9, 0)

const forever = 1000 * time.Hour

// process is a process that is a rank, and its attempt.
type process struct {
	m       *Meeting
	request Request
	pid     int
	attempt int  // of this process
	wrote   bool // its last operation was one that others see
}

// outcome is what an attempt has ended with.
type outcome struct {
	rank, round int
	addresses   string // "" if it has not met
}

type world struct {
	board  map[string]string
	ranks  []*process // the living one of each rank
	dead   []int      // pids
	met    []outcome
	hours  int
	deaths int // how many may follow
	cuts   int
	lates  int
	free   bool // of faults: no attempt may fail
	mutant mutant
}

// mutant breaks a rule: it may change a meeting before the next step, or the answer for it.
type mutant func(m *Meeting, r Request, a *Answer, w *world)

func newWorld(ranks int) *world {
	w := &world{board: map[string]string{}, ranks: make([]*process, ranks)}
	for rank := range ranks {
		w.begin(rank, 100+rank)
	}
	return w
}

func (w *world) now() time.Time { return zero.Add(time.Duration(w.hours) * time.Hour) }

// begin starts the first attempt of a process, as the living one of its rank.
func (w *world) begin(rank, pid int) {
	w.ranks[rank] = &process{pid: pid}
	w.try(rank, w.now().Add(-time.Minute))
}

func (w *world) try(rank int, began time.Time) {
	p := w.ranks[rank]
	p.attempt++
	p.m = New(Config{Name: "g", Rank: rank, Size: len(w.ranks), Timeout: forever, Began: began,
		Self: topo.Process{Host: "h", Pid: p.pid}, Address: fmt.Appendf(nil, "%d of %d", p.attempt, p.pid)}, w.now())
	p.request = p.m.Step(w.now(), Answer{})
}

func (w *world) clone() *world {
	c := *w
	c.board, c.dead, c.met = maps.Clone(w.board), slices.Clone(w.dead), slices.Clone(w.met)
	c.ranks = nil
	for _, p := range w.ranks {
		q := *p
		m := *p.m
		m.asked, m.there, m.away = slices.Clone(m.asked), slices.Clone(m.there), slices.Clone(m.away)
		q.m = &m
		c.ranks = append(c.ranks, &q)
	}
	return &c
}

// apply does a request on the board.
func (w *world) apply(r Request) (a Answer) {
	counter := func(key string) int {
		n, _ := strconv.Atoi(w.board[key])
		return n
	}
	switch r.Op {
	case Add:
		sum := counter(r.Keys[0]) + int(r.Number)
		w.board[r.Keys[0]] = strconv.Itoa(sum)
		a.Number = int64(sum)
	case Set:
		w.board[r.Keys[0]] = string(r.Value)
	case Check:
		a.Number = 1
		for _, key := range r.Keys {
			if _, ok := w.board[key]; !ok {
				a.Number = 0
			}
		}
	case Read:
		for _, key := range r.Keys {
			value, ok := w.board[key]
			if !ok {
				panic("a read of " + key + ", which waits")
			}
			a.Values = append(a.Values, []byte(value))
		}
	case Swap:
		if _, ok := w.board[r.Keys[0]]; !ok {
			w.board[r.Keys[0]] = string(r.Value)
		}
		a.Values = [][]byte{[]byte(w.board[r.Keys[0]])}
	}
	return a
}

// writes reports whether others see that a request was done.
func (r *Request) writes() bool { return r.Op == Set || r.Op == Swap || r.Op == Add && r.Number > 0 }

// alone reports whether it makes no difference when a rank does its request: nobody changes what
// it reads, or else reads what it writes. A record that is there stays as it is, but for counters.
func (w *world) alone(rank int) bool {
	r := &w.ranks[rank].request
	there := func(key string) bool {
		_, ok := w.board[key]
		return ok
	}
	all := !slices.ContainsFunc(r.Keys, func(key string) bool { return !there(key) })
	switch r.Op {
	case Read:
		return !strings.HasPrefix(r.Keys[0], "goccl/came")
	case Set:
		return strings.HasPrefix(r.Keys[0], "goccl/read")
	case Check, Swap:
		return all || strings.HasPrefix(r.Keys[0], "goccl/size") // all have the same
	case Add:
		return r.Number == 0 && r.Keys[0] == cameKey(rank)
	case Look:
		return true
	}
	return false
}

// step does the request of a rank, and those that follow alone, and takes the next one.
func (w *world) step(rank int) error {
	for {
		paused := w.ranks[rank].request.Op == Pause
		if err := w.stepOnce(rank); err != nil || !paused && !w.alone(rank) {
			return err
		}
	}
}

func (w *world) stepOnce(rank int) error {
	p := w.ranks[rank]
	p.wrote = p.request.writes()
	a := w.apply(p.request)
	p.m.cfg.Gone = func(of topo.Process) bool { return slices.Contains(w.dead, of.Pid) }
	if w.mutant != nil {
		w.mutant(p.m, p.request, &a, w)
	}
	p.request = p.m.Step(w.now(), a)
	p.m.pause = lastPause // how long a rank waits is not told apart
	if p.request.Op == Swap && strings.HasPrefix(p.request.Keys[0], "goccl/verdict") {
		v := &verdict{}
		if err := json.Unmarshal(p.request.Value, v); err != nil {
			return err
		}
		for _, o := range p.m.offers {
			if v.Kind == met && slices.Contains(w.dead, o.Pid) {
				return fmt.Errorf("it counts process %d, which is known to have ended", o.Pid)
			}
		}
	}
	return w.ended(rank)
}

// ended notes an attempt that is over, and begins the next one if it has failed.
func (w *world) ended(rank int) error {
	p := w.ranks[rank]
	if !p.m.over {
		return nil
	}
	addresses, err := p.m.Outcome()
	if err != nil {
		if _, judged := w.board[verdictKey(p.m.round)]; !judged {
			return fmt.Errorf("rank %d fails in round %d, and the others are not told: %w", rank, p.m.round, err)
		}
		w.try(rank, p.m.cfg.Began)
		return nil
	}
	all := fmt.Sprintf("%s", addresses)
	for _, other := range w.met {
		if other.round == p.m.round && other.addresses != all {
			return fmt.Errorf("round %d: rank %d has met %s, rank %d %s", p.m.round, rank, all, other.rank, other.addresses)
		}
	}
	if string(addresses[rank]) != string(p.m.cfg.Address) {
		return fmt.Errorf("rank %d has met %s without itself", rank, all)
	}
	w.met = append(w.met, outcome{rank, p.m.round, all})
	return nil
}

// quiet reports whether what a rank does next makes no difference to the others whenever it is
// done, and none to itself: then the others need not go first. It offers itself, or looks for a
// verdict, while nobody can look at offers or write a verdict before it has counted itself.
func (w *world) quiet(rank int) bool {
	p := w.ranks[rank]
	if w.lates > 0 {
		return false
	}
	switch r := &p.request; {
	case r.Op == Set, r.Op == Check && strings.HasPrefix(r.Keys[0], "goccl/verdict"):
	case r.Op == Add && r.Number > 0 && strings.HasPrefix(r.Keys[0], "goccl/came"):
	default:
		return false
	}
	rounds := 1
	for other, q := range w.ranks {
		rounds = max(rounds, q.m.round+1)
		if other == rank || q.m.over || q.request.Op == Pause {
			continue
		}
		switch r := &q.request; {
		case r.Op == Set, r.Op == Check && strings.HasPrefix(r.Keys[0], "goccl/verdict"):
		case r.Op == Add && r.Number > 0:
		default:
			return false
		}
	}
	for round := 1; round <= rounds; round++ {
		most, _ := strconv.Atoi(w.board[countKey(round)])
		most += w.deaths + w.cuts
		for other, q := range w.ranks {
			waits := q.request.Op == Pause && q.m.round == round
			if other != rank && !q.m.over && !waits {
				most++
			}
		}
		if _, over := w.board[verdictKey(round)]; !over && most >= len(w.ranks) {
			return false
		}
	}
	return true
}

// next returns all states that may follow, and the first rule that one of them breaks.
func (w *world) next() (all []*world, err error) {
	add := func(rank int, change func(n *world, p *process) error) {
		n := w.clone()
		if failed := change(n, n.ranks[rank]); failed != nil {
			err = failed
		}
		all = append(all, n)
	}
	first := slices.IndexFunc(w.ranks, func(p *process) bool { return !p.m.over && w.quiet(p.m.self.Rank) })
	for rank, p := range w.ranks {
		if p.m.over || first >= 0 && rank != first {
			continue
		}
		add(rank, func(n *world, _ *process) error { return n.step(rank) })
		for i := range p.m.asked { // in any order: see stateKey
			if p.request.Op == Add && p.request.Number == 0 && i > 0 {
				add(rank, func(n *world, p *process) error {
					p.m.asked[0], p.m.asked[i] = p.m.asked[i], p.m.asked[0]
					p.request = p.m.askOne()
					return n.step(rank)
				})
			}
		}
		if p.request.Op == Pause && p.m.look.After(w.now()) {
			add(rank, func(n *world, p *process) error {
				p.m.look = n.now()
				return n.step(rank)
			})
		}
		if p.request.Op == Pause && w.lates > 0 {
			add(rank, func(n *world, p *process) error {
				n.lates--
				p.m.ends = n.now()
				return n.step(rank)
			})
		}
		// A process that dies after it has read something might as well have died before it did.
		if w.deaths > 0 && p.wrote {
			add(rank, func(n *world, p *process) error {
				n.deaths--
				n.hours++
				n.dead = append(n.dead, p.pid)
				n.begin(rank, p.pid+100)
				return nil
			})
		}
		if w.cuts > 0 {
			for _, done := range []bool{false, true} { // whether the operation happened that it got no answer of
				if done && !p.request.writes() || !done && !p.wrote {
					continue
				}
				add(rank, func(n *world, p *process) error {
					n.cuts--
					if done {
						n.apply(p.request)
					}
					n.try(rank, p.m.cfg.Began)
					return nil
				})
			}
		}
	}
	return all, err
}

// waits reports whether nothing but time goes on.
func (w *world) waits() bool {
	return !slices.ContainsFunc(w.ranks, func(p *process) bool { return !p.m.over && p.request.Op != Pause })
}

// finish lets all ranks go on without more faults, one operation of each in turn. All that have
// not met must meet.
func (w *world) finish() error {
	n, idle := w.clone(), 0
	for range 400 {
		over, stuck, before := true, idle > 20, maps.Clone(n.board)
		for rank, p := range n.ranks {
			if p.m.over {
				if stuck { // who has met somebody that is not there, finds so, and tries again
					n.try(rank, p.m.cfg.Began)
				}
				continue
			}
			over = false
			if p.request.Op == Pause {
				p.m.look = n.now()
			}
			if err := n.step(rank); err != nil {
				return err
			}
		}
		if idle++; stuck || !maps.Equal(before, n.board) {
			idle = 0
		}
		if over {
			return nil
		}
		if n.free && slices.ContainsFunc(n.ranks, func(p *process) bool { return p.attempt > 1 }) {
			break
		}
	}
	text := ""
	for rank, p := range n.ranks {
		text += fmt.Sprintf("rank %d: over %v, attempt %d in round %d; ", rank, p.m.over, p.m.self.Attempt, p.m.round)
	}
	return fmt.Errorf("they never meet: %s", text)
}

// explore visits the states that follow from one, and returns their number, and the first broken
// rule.
func explore(w *world) (states int, err error) {
	seen := map[stateKey]bool{}
	stack := []*world{w}
	for len(stack) > 0 {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		key := w.key()
		if seen[key] {
			continue
		}
		seen[key] = true
		following, err := w.next()
		if err == nil && w.waits() {
			err = w.finish()
		}
		if err != nil {
			return len(seen), fmt.Errorf("%w\n%v", err, w)
		}
		stack = append(stack, following...)
	}
	return len(seen), nil
}

var full = flag.Bool("model.full", false, "also visit the states of three ranks with several faults")

// faults is a scenario: how many ranks there are, and what may happen to them.
type faults struct{ ranks, deaths, cuts, lates int }

func (f faults) world() *world {
	w := newWorld(f.ranks)
	w.deaths, w.cuts, w.lates = f.deaths, f.cuts, f.lates
	w.free = f.deaths+f.cuts+f.lates == 0
	return w
}

func TestAllInterleavings(t *testing.T) {
	scenarios := []faults{
		{2, 0, 0, 0}, {2, 1, 0, 0}, {2, 0, 1, 0}, {2, 0, 0, 1}, {2, 0, 1, 1}, {2, 1, 1, 1},
		{3, 0, 0, 0}, {3, 1, 0, 0}, {3, 0, 1, 0}, {3, 0, 0, 1},
	}
	if *full {
		scenarios = append(scenarios, faults{3, 1, 1, 0}, faults{3, 1, 0, 1}, faults{3, 0, 1, 1}, faults{3, 1, 1, 1})
	}
	for _, each := range scenarios {
		t.Run(fmt.Sprintf("%+v", each), func(t *testing.T) {
			t.Parallel()
			states, err := explore(each.world())
			require.NoError(t, err)
			t.Logf("%d states", states)
		})
	}
}

// TestManyFaults takes random ways through the states of up to 4 ranks with more faults, which are
// too many to visit.
func TestManyFaults(t *testing.T) {
	for seed := range uint64(800) {
		require.NoError(t, wander(seed), "seed %d", seed)
	}
}

// wander takes a random way through the states of a group with faults.
func wander(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(2 + r.IntN(3))
	w.deaths, w.cuts, w.lates = r.IntN(3), r.IntN(3), r.IntN(3)
	if w.deaths+w.cuts+w.lates == 0 {
		w.lates = 1
	}
	for range 20 + r.IntN(200) {
		following, err := w.next()
		if err != nil {
			return err
		}
		if len(following) == 0 {
			return nil
		}
		w = following[r.IntN(len(following))]
	}
	return w.finish()
}

// key0 returns the first key of a request, "" if it has none.
func key0(r Request) string { return strings.Join(r.Keys[:min(len(r.Keys), 1)], "") }

// TestMutants breaks each rule: the model must find it.
func TestMutants(t *testing.T) {
	onVerdict := func(r Request) bool { return strings.HasPrefix(key0(r), "goccl/verdict") }
	for name, broken := range map[string]mutant{
		"the last verdict counts": func(_ *Meeting, r Request, a *Answer, w *world) {
			if r.Op == Swap && onVerdict(r) {
				w.board[r.Keys[0]], a.Values = string(r.Value), [][]byte{r.Value}
			}
		},
		"offers of processes that have ended count": func(m *Meeting, _ Request, _ *Answer, _ *world) {
			m.cfg.Gone = func(topo.Process) bool { return false }
		},
		"the first offers count": func(m *Meeting, r Request, a *Answer, _ *world) {
			for i, key := range r.Keys {
				if r.Op == Read && strings.HasPrefix(key, "goccl/came") {
					a.Values[i] = []byte(strconv.Itoa(m.round))
				}
			}
		},
		"nobody is the last to come": func(_ *Meeting, r Request, a *Answer, _ *world) {
			if r.Op == Add && strings.HasPrefix(r.Keys[0], "goccl/count") {
				a.Number = 0
			}
		},
		"only who counts exactly that number of looks": func(m *Meeting, r Request, a *Answer, _ *world) {
			if r.Op == Add && strings.HasPrefix(r.Keys[0], "goccl/count") && int(a.Number) != m.self.Size {
				a.Number = 0
			}
		},
		"it counts before it offers": func(_ *Meeting, r Request, a *Answer, w *world) {
			if offer := strings.HasPrefix(key0(r), "goccl/offer"); r.Op == Set && offer {
				w.board["late "+r.Keys[0]] = string(r.Value)
				delete(w.board, r.Keys[0])
			} else if r.Op == Check && strings.HasPrefix(r.Keys[0], "goccl/verdict") {
				for key, value := range w.board {
					if after, ok := strings.CutPrefix(key, "late "); ok {
						w.board[after] = value
						delete(w.board, key)
					}
				}
			}
		},
		"a round that is over is entered": func(m *Meeting, r Request, a *Answer, _ *world) {
			if r.Op == Check && onVerdict(r) && m.open {
				a.Number = 0
			}
		},
		"the first round is each attempt's own": func(m *Meeting, r Request, a *Answer, _ *world) {
			descends := reflect.ValueOf(m.then).Pointer() == reflect.ValueOf((*Meeting).found).Pointer()
			if r.Op == Check && onVerdict(r) && descends {
				a.Number = 1
			}
		},
		"who gives up writes nothing": func(m *Meeting, r Request, a *Answer, w *world) {
			if r.Op == Swap && onVerdict(r) && strings.Contains(string(r.Value), `"late"`) &&
				w.board[r.Keys[0]] == string(r.Value) {
				delete(w.board, r.Keys[0])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, each := range []faults{{2, 1, 0, 0}, {2, 0, 1, 0}, {2, 0, 0, 1}, {3, 1, 0, 0}, {2, 1, 1, 1}} {
				w := each.world()
				w.mutant = broken
				if states, err := explore(w); err != nil {
					text, _, _ := strings.Cut(err.Error(), "\n")
					t.Logf("%+v: %d states; %s", each, states, text)
					return
				}
			}
			t.Fatal("the model does not find it")
		})
	}
}
