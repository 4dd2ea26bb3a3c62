package member

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
)

// scene is a board, and a clock that the test moves.
type scene struct {
	t     *testing.T
	board *world
	now   time.Time
	gone  map[int]bool
	lost  []string
	pid   int
}

func newScene(t *testing.T) *scene {
	return &scene{t: t, board: newWorld(0), now: zero, gone: map[int]bool{}, pid: 10}
}

// actor is an attempt of a process, and what it has to do next.
type actor struct {
	*Meeting
	request Request
}

func (s *scene) config(rank, size int) Config {
	s.pid++
	return Config{Name: "dp", Call: "init_process_group or new_group",
		Rank: rank, Size: size, Timeout: 5 * time.Second, Began: s.now.Add(-time.Second),
		Self:    topo.Process{Host: "h", Pid: s.pid, Machine: "m", Start: 1},
		Address: fmt.Appendf(nil, "address of %d", s.pid),
		Gone:    func(p topo.Process) bool { return s.gone[p.Pid] }}
}

func (s *scene) begin(cfg Config) *actor {
	a := &actor{Meeting: New(cfg, s.now)}
	a.request = a.Step(s.now, Answer{})
	return a
}

func (s *scene) come(rank, size int) *actor { return s.begin(s.config(rank, size)) }

// play lets the attempts go on, one operation of each in turn, for so long.
func (s *scene) play(span time.Duration, actors ...*actor) {
	for end := s.now.Add(span); ; s.now = s.now.Add(10 * time.Millisecond) {
		for range 50 {
			for _, a := range actors {
				if a.request.Op == Over {
					continue
				}
				answer := s.board.apply(a.request)
				for _, line := range s.lost {
					if a.request.Op == Look {
						answer.Values = append(answer.Values, []byte(line))
					}
				}
				a.request = a.Step(s.now, answer)
			}
		}
		if s.now.After(end) {
			return
		}
	}
}

// fails checks that an attempt has ended with a text, and returns it.
func (s *scene) fails(a *actor, code fault.Code, text string) {
	s.t.Helper()
	require.Equal(s.t, Over, a.request.Op, "it goes on")
	_, err := a.Outcome()
	require.ErrorIs(s.t, err, code)
	require.Equal(s.t, text, strings.TrimPrefix(err.Error(), "goccl: "))
}

func (s *scene) meets(actors ...*actor) {
	s.t.Helper()
	for _, a := range actors {
		require.Equal(s.t, Over, a.request.Op, "it goes on")
		all, err := a.Outcome()
		require.NoError(s.t, err)
		require.Len(s.t, all, len(actors))
		for _, b := range actors {
			require.Equal(s.t, string(b.cfg.Address), string(all[b.self.Rank]))
		}
	}
}

const soon = 200 * time.Millisecond

func TestAllCome(t *testing.T) {
	s := newScene(t)
	for round := range 3 { // the board serves again
		all := []*actor{s.come(2, 3), s.come(0, 3), s.come(1, 3)}
		s.play(0, all...)
		s.meets(all...)
		require.Equal(t, round+1, all[0].round)
	}
	alone := newScene(t)
	a := alone.come(0, 1)
	alone.play(0, a)
	alone.meets(a)
}

// TestAlone has groups of one rank, which torch may give one store: each process is rank 0 of its
// own.
func TestAlone(t *testing.T) {
	s := newScene(t)
	for range 2 {
		s.meets(s.come(0, 1))
	}
	require.Empty(t, s.board.board)
}

// TestLate has rank 0 give up several times before rank 1 comes. Rank 1 is told once, and meets at
// its next try.
func TestLate(t *testing.T) {
	s := newScene(t)
	first, late := s.config(0, 2), s.config(1, 2)
	for range 3 {
		a := s.begin(first)
		s.play(6*time.Second, a)
		s.fails(a, fault.Timeout, "timeout: rank 1 (of 2) did not come to group dp within 5 s: not started, still busy, "+
			"or failed before the call of init_process_group or new_group; look at the output there, or raise the timeout")
	}
	b := s.begin(late)
	s.play(soon, b)
	s.fails(b, fault.Timeout, "timeout (rank 0): rank 0 (pid 11 on h) gave up 1.0 s ago, since this rank had not come "+
		"within 5 s; all ranks can call init_process_group or new_group again, and meet there")
	a, b := s.begin(first), s.begin(late)
	s.play(soon, a, b)
	s.meets(a, b)
}

// TestRestarted has rank 1 give up, and a new process in place of rank 0 that came before: it is
// not told what was before its time.
func TestRestarted(t *testing.T) {
	s := newScene(t)
	b := s.come(1, 2)
	cfg := b.cfg
	s.play(6*time.Second, b)
	s.now = s.now.Add(time.Hour)
	a := s.come(0, 2)
	s.play(soon, a)
	b = s.begin(cfg)
	s.play(soon, a, b)
	s.meets(a, b)
}

// TestLeftOver meets on a board with the offer of a process that has ended.
func TestLeftOver(t *testing.T) {
	s := newScene(t)
	dead := s.come(0, 2)
	s.play(soon, dead)
	s.gone[dead.cfg.Self.Pid] = true
	s.now = s.now.Add(time.Minute)
	b := s.come(1, 2)
	s.play(soon, b)
	a := s.come(0, 2)
	s.play(soon, a, b)
	s.meets(a, b)
}

func TestVerdicts(t *testing.T) {
	t.Run("failed", func(t *testing.T) {
		s := newScene(t)
		a, c := s.come(0, 3), s.come(2, 3)
		s.play(soon, a, c)
		cfg := s.config(1, 3)
		cfg.Failed = "no such option"
		b := s.begin(cfg)
		s.play(soon, a, b, c)
		const text = "peer left (rank 1): rank 1 (pid 13 on h) cannot join: no such option"
		s.fails(a, fault.PeerLeft, text)
		s.fails(c, fault.PeerLeft, text)
		s.fails(b, fault.PeerLeft, text)
	})
	t.Run("failed first", func(t *testing.T) {
		s := newScene(t)
		cfg := s.config(0, 2)
		cfg.Failed, cfg.KeepsStore = "no such option", true
		a := s.begin(cfg)
		s.play(soon, a)
		require.NotEqual(t, Over, a.request.Op, "it keeps the store until the other one has read it")
		b := s.come(1, 2)
		s.play(0, a, b)
		s.fails(b, fault.PeerLeft, "peer left (rank 0): rank 0 (pid 11 on h) cannot join: no such option")
		require.Equal(t, Over, a.request.Op)
		cfg.Failed = ""
		a, b = s.begin(cfg), s.come(1, 2)
		s.play(soon, a, b)
		s.meets(a, b)
	})
	t.Run("nobody to keep the store for", func(t *testing.T) {
		s := newScene(t)
		cfg := s.config(0, 2)
		cfg.Failed, cfg.KeepsStore = "no such option", true
		a := s.begin(cfg)
		s.play(1100*time.Millisecond, a)
		require.Equal(t, Over, a.request.Op)
	})
	t.Run("interrupted", func(t *testing.T) {
		s := newScene(t)
		a, b := s.come(0, 2), s.come(1, 3)
		s.play(10*time.Millisecond, a)
		a.request = a.Interrupt(s.now, "it was interrupted")
		s.play(soon, a, b)
		s.fails(b, fault.PeerLeft, "peer left (rank 0): rank 0 (pid 11 on h) cannot join: it was interrupted")
	})
	t.Run("interrupted at once", func(t *testing.T) {
		s := newScene(t)
		a := s.come(0, 2)
		a.request = a.Interrupt(s.now, "it was interrupted")
		s.fails(a, fault.Aborted, "aborted: it was interrupted")
		require.Empty(t, s.board.board)
	})
	t.Run("sizes", func(t *testing.T) {
		for _, ranks := range [][2]int{{0, 1}, {0, 2}, {1, 0}} {
			s := newScene(t)
			a, b := s.come(ranks[0], 2), s.come(ranks[1], 3)
			s.play(soon, a, b)
			_, err := a.Outcome()
			require.ErrorContains(t, err, "mismatch: number of ranks: rank ")
			require.ErrorContains(t, err, fmt.Sprintf("rank %d (pid 11 on h) has 2", ranks[0]))
			require.ErrorContains(t, err, fmt.Sprintf("rank %d (pid 12 on h) has 3", ranks[1]))
			_, other := b.Outcome()
			require.Equal(t, err, other)
		}
	})
	t.Run("twice", func(t *testing.T) {
		s := newScene(t)
		a, c, b := s.come(0, 3), s.come(1, 3), s.come(0, 3)
		s.play(soon, a, b, c)
		for _, each := range []*actor{a, b, c} {
			s.fails(each, fault.Mismatch, "mismatch: two processes have come as rank 0: pid 11 on h, and pid 13 on h; "+
				"is a rank used twice?")
		}
	})
	t.Run("replaced", func(t *testing.T) {
		s := newScene(t)
		a := s.come(0, 2)
		s.play(soon, a)
		b, c := s.come(0, 2), s.come(1, 2)
		s.play(0, b, c) // before a looks again
		s.meets(b, c)
		s.play(soon, a)
		s.fails(a, fault.Mismatch, "mismatch: another process has joined as rank 0; is a rank used twice?")
	})
	t.Run("ended", func(t *testing.T) {
		s := newScene(t)
		a, b := s.come(0, 2), s.come(1, 2)
		s.gone[a.cfg.Self.Pid] = true
		s.play(0, a)
		s.play(0, b)
		s.fails(b, fault.PeerLost, "peer lost (rank 0): rank 0 (pid 11 on h) came, but its process has ended")
	})
	t.Run("ended long ago", func(t *testing.T) {
		s := newScene(t)
		a := s.come(0, 2)
		s.play(0, a)
		s.gone[a.cfg.Self.Pid] = true
		s.now = s.now.Add(time.Minute)
		b := s.come(1, 2)
		s.play(6*time.Second, b)
		s.fails(b, fault.PeerLost, "peer lost (rank 0): rank 0 (pid 11 on h) came, but its process has ended, and no other "+
			"one has come as this rank within 5 s")
	})
	t.Run("lost", func(t *testing.T) {
		s := newScene(t)
		cfg := s.config(0, 3)
		cfg.OfJob = []uint64{4, 1, 7}
		a, b := s.begin(cfg), s.come(1, 3)
		s.play(0, a, b)
		s.lost = []string{"1 was killed", "2 was killed by signal 9 (SIGKILL)", "2 again", "7 is not of this group"}
		s.play(soon, a)
		s.play(0, b)
		const text = "peer lost: rank 2 (global rank 7): again"
		s.fails(a, fault.PeerLost, text)
		s.fails(b, fault.PeerLost, text)
	})
}

// TestLateIsToldToAll has two ranks that came, of many.
func TestLateIsToldToAll(t *testing.T) {
	s := newScene(t)
	a, b := s.come(0, 40), s.come(1, 40)
	b.ends = b.ends.Add(time.Second)
	s.play(6*time.Second, a, b)
	_, err := b.Outcome()
	require.ErrorContains(t, err, "timeout: ranks 2, 3, 4,")
	require.ErrorContains(t, err, "33 and 6 more (of 40) did not come to group dp within 5 s (rank 0 (pid 11 on h) gave up): ")
}

// TestDamagedRecords has values on the board that nobody has written so.
func TestDamagedRecords(t *testing.T) {
	for key, value := range map[string]string{
		"goccl/verdict/1":   "{",
		"goccl/offer/1/0/1": "no offer",
		"goccl/came/0":      "many",
	} {
		s := newScene(t)
		a, b := s.come(0, 2), s.come(1, 2)
		a.cfg.Timeout = time.Second
		s.play(0, a)
		s.board.board[key] = value
		s.play(8*time.Second, b)
		require.Equal(t, Over, b.request.Op, key)
		_, err := b.Outcome()
		require.Error(t, err, key)
	}
	s := newScene(t)
	a := s.come(0, 2)
	s.board.board["goccl/size/1"] = "[]"
	s.play(soon, a)
	s.fails(a, fault.PeerLeft, "peer left (rank 0): rank 0 (pid 11 on h) cannot join: internal error: the record of the "+
		"group's size in the store cannot be read")
	s = newScene(t)
	s.play(0, s.come(0, 2))
	a = s.come(1, 2)
	for range 100 {
		if a.request.Op == Read {
			break
		}
		a.request = a.Step(s.now, s.board.apply(a.request))
	}
	a.request = a.Step(s.now, Answer{})
	s.fails(a, fault.Internal, "internal error: the store has 0 of 4 values")
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"kind":"met","by":{"rank":0},"size":2,"attempts":{"1":2}}`))
	f.Add([]byte(`{"rank":1,"size":2,"host":"h"}` + "\naddress"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if v, err := parseVerdict(text, 2); err == nil {
			_ = v.err(&party{Rank: 1, Size: 2}, zero, &Config{Rank: 1, Size: 2}).Error()
			v.attempt(1, 1)
		}
		if o, err := parseOffer(text); err == nil {
			again, err := parseOffer(o.encode())
			require.NoError(t, err)
			require.Equal(t, o.address, again.address)
		}
	})
}
