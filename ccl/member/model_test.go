package member

import (
	"encoding/json"
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

// zero is when the model begins. Its time only goes on when a process dies, by an hour.
var zero = time.Unix(1e9, 0)

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
	twin   bool // a second process comes as rank 1
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
	p.m = New(Config{Name: "g", Rank: rank, Size: len(w.ranks), Timeout: time.Minute, Began: began,
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
		m.there, m.away = slices.Clone(m.there), slices.Clone(m.away)
		q.m = &m
		c.ranks = append(c.ranks, &q)
	}
	return &c
}

func (w *world) key() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(w.board)) {
		fmt.Fprintf(&b, "%s=%s\n", key, w.board[key])
	}
	for _, p := range w.ranks {
		m := p.m
		fmt.Fprintln(&b, p.pid, p.attempt, p.wrote, p.request.Op, p.request.Keys, string(p.request.Value))
		fmt.Fprintln(&b, m.round, m.self.Attempt, m.open,
			m.sized, m.over, m.err, m.said != nil, m.offers != nil, m.asked, m.there, m.away, m.late(),
			reflect.ValueOf(m.then).Pointer())
	}
	fmt.Fprintln(&b, w.deaths, w.cuts, w.lates, w.hours)
	return b.String()
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

// alone reports whether it makes no difference when a request is done: nobody changes what it
// reads, or else reads what it writes.
func (r *Request) alone() bool {
	return r.Op == Read && !strings.HasPrefix(r.Keys[0], "goccl/came") ||
		r.Op == Set && strings.HasPrefix(r.Keys[0], "goccl/read")
}

// step does the request of a rank, and those that follow alone, and takes the next one.
func (w *world) step(rank int) error {
	for {
		if err := w.stepOnce(rank); err != nil || !w.ranks[rank].request.alone() {
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

// next returns all states that may follow, and the first rule that one of them breaks.
func (w *world) next() (all []*world, err error) {
	add := func(rank int, change func(n *world, p *process) error) {
		n := w.clone()
		if failed := change(n, n.ranks[rank]); failed != nil {
			err = failed
		}
		all = append(all, n)
	}
	for rank, p := range w.ranks {
		if p.m.over {
			continue
		}
		add(rank, func(n *world, _ *process) error { return n.step(rank) })
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
	n := w.clone()
	for turn := range 400 {
		over, stuck := true, turn%100 > 80 && n.waits()
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
	seen := map[string]bool{}
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
			return len(seen), fmt.Errorf("%w\n%s", err, key)
		}
		stack = append(stack, following...)
	}
	return len(seen), nil
}

func TestAllInterleavings(t *testing.T) {
	for _, tt := range []struct{ ranks, deaths, cuts, lates int }{
		{2, 0, 0, 0}, {2, 1, 0, 0}, {2, 0, 1, 0}, {2, 0, 0, 1}, {2, 0, 1, 1}, {3, 0, 0, 0},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			t.Parallel()
			w := newWorld(tt.ranks)
			w.deaths, w.cuts, w.lates = tt.deaths, tt.cuts, tt.lates
			w.free = tt.deaths+tt.cuts+tt.lates == 0
			states, err := explore(w)
			require.NoError(t, err)
			t.Logf("%d states", states)
		})
	}
}

// TestManyFaults takes random ways through the states of up to 4 ranks with more faults, which are
// too many to visit.
func TestManyFaults(t *testing.T) {
	for seed := range uint64(800) {
		require.NoError(t, wander(seed, nil), "seed %d", seed)
	}
}

// wander takes a random way through the states of a group with faults.
func wander(seed uint64, broken mutant) error {
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(2 + r.IntN(3))
	w.deaths, w.cuts, w.lates, w.mutant = r.IntN(3), r.IntN(3), r.IntN(3), broken
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

// TestMutants breaks each rule: the model must find it.
// key0 returns the first key of a request, "" if it has none.
func key0(r Request) string { return strings.Join(r.Keys[:min(len(r.Keys), 1)], "") }

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
		"only who counts exactly so many looks": func(m *Meeting, r Request, a *Answer, _ *world) {
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
			for seed := range uint64(4000) {
				if wander(seed, broken) != nil {
					t.Logf("found by seed %d", seed)
					return
				}
			}
			t.Fatal("the model does not find it")
		})
	}
}
