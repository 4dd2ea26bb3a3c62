package member

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What a rank does while it waits for the verdict: it looks who has come, who is there twice, and
// who has died.

// watch waits for the verdict.
func (m *Meeting) watch() Request {
	return m.ask((*Meeting).watched, Request{Op: Check, Keys: one(verdictKey(m.round))})
}

func (m *Meeting) late() bool { return !m.now.Before(m.ends) }

func (m *Meeting) watched(a Answer) Request {
	if a.Number == 1 {
		return m.ask((*Meeting).heard, Request{Op: Read, Keys: one(verdictKey(m.round))})
	}
	m.open = true
	switch {
	case m.late():
		return m.askFor(m.others(), (*Meeting).giveUp)
	case !m.now.Before(m.look):
		return m.lookAround()
	}
	pause := m.pause
	m.pause = min(2*pause, lastPause)
	return m.ask((*Meeting).paused, Request{Op: Pause, Number: int64(min(pause, m.ends.Sub(m.now)))})
}

func (m *Meeting) paused(Answer) Request { return m.watch() }

// lookAround looks at what only this rank can see: who else is this rank, whether another one was
// told another size, which ranks are known to have died.
func (m *Meeting) lookAround() Request {
	m.look = m.now.Add(lookEach)
	if m.sized {
		return m.spot()
	}
	m.sized = true
	return m.ask((*Meeting).measured, Request{Op: Swap, Keys: one(sizeKey(m.round)), Value: encode(m.self)})
}

func (m *Meeting) measured(a Answer) Request {
	other, err := parseParty(a.Values[0])
	switch {
	case err != nil:
		return m.refuse(err)
	case other.Size != m.self.Size:
		return m.judge(&verdict{Kind: sizes, Other: other})
	}
	return m.spot()
}

func (m *Meeting) spot() Request {
	return m.ask((*Meeting).spotted, Request{Op: Add, Keys: one(cameKey(m.self.Rank))})
}

// spotted takes the number of attempts to be this rank. If there was a later one, and it has come
// to this round, then two processes are the same rank: this one is alive.
func (m *Meeting) spotted(a Answer) Request {
	if int(a.Number) == m.self.Attempt {
		return m.ask((*Meeting).looked, Request{Op: Look})
	}
	m.twin = offerKey(m.round, m.self.Rank, int(a.Number))
	return m.ask((*Meeting).doubled, Request{Op: Check, Keys: one(m.twin)})
}

func (m *Meeting) doubled(a Answer) Request {
	if a.Number == 0 {
		return m.ask((*Meeting).looked, Request{Op: Look})
	}
	return m.ask((*Meeting).recognized, Request{Op: Read, Keys: one(m.twin)})
}

func (m *Meeting) recognized(a Answer) Request {
	o, err := parseOffer(a.Values[0])
	if err != nil {
		return m.refuse(err)
	}
	return m.judge(&verdict{Kind: twice, Other: &o.party})
}

// looked takes which ranks are known to have died. Those that have come to the round before are
// left to the joining, which finds that nobody is there.
func (m *Meeting) looked(a Answer) Request {
	m.dead = map[int]string{}
	var ranks []int
	for _, line := range a.Values {
		number, why, _ := strings.Cut(string(line), " ")
		if rank, err := strconv.Atoi(number); err == nil && rank >= 0 && rank < m.self.Size && rank != m.self.Rank {
			m.dead[rank] = why
			ranks = append(ranks, rank)
		}
	}
	if len(ranks) == 0 {
		return m.watch()
	}
	slices.Sort(ranks)
	return m.askFor(slices.Compact(ranks), (*Meeting).mourn)
}

func (m *Meeting) mourn() Request {
	if len(m.away) == 0 {
		return m.watch()
	}
	var texts []string
	for _, rank := range m.away[:min(len(m.away), mostNamed)] {
		texts = append(texts, fmt.Sprintf("%s: %s", m.cfg.named([]int{rank}), m.dead[rank]))
	}
	why := strings.Join(texts, "; ")
	return m.judge(&verdict{Kind: lost, Missing: m.away, Why: why[:min(len(why), maxWhy)]})
}

// giveUp ends the round when the time is over. If all are there after all, they have met.
func (m *Meeting) giveUp() Request {
	if len(m.away) == 0 {
		return m.gather()
	}
	return m.judge(&verdict{Kind: late, Missing: m.away, Timeout: m.cfg.Timeout})
}

// others returns the other ranks.
func (m *Meeting) others() []int {
	ranks := make([]int, 0, m.self.Size)
	for rank := range m.self.Size {
		if rank != m.self.Rank {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// askFor finds out which ranks are in the round.
func (m *Meeting) askFor(ranks []int, then func(*Meeting) Request) Request {
	m.asked, m.asks, m.there, m.away = ranks, then, nil, nil
	return m.askOne()
}

func (m *Meeting) askOne() Request {
	if len(m.asked) == 0 {
		return m.asks(m)
	}
	return m.ask((*Meeting).askedOne, Request{Op: Add, Keys: one(cameKey(m.asked[0]))})
}

func (m *Meeting) askedOne(a Answer) Request {
	return m.ask((*Meeting).answered, Request{Op: Check, Keys: one(offerKey(m.round, m.asked[0], int(a.Number)))})
}

func (m *Meeting) answered(a Answer) Request {
	to := &m.away
	if a.Number == 1 {
		to = &m.there
	}
	*to = append(*to, m.asked[0])
	m.asked = m.asked[1:]
	return m.askOne()
}
