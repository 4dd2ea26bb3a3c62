package flight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what records tell together. Ranks are numbers in the whole job, and seconds are those
// before the record of a rank was written.
type Report struct {
	Ranks      []int         `json:"ranks"`                // that have left records
	Missing    []int         `json:"missing,omitempty"`    // members of groups that have not
	Unreadable []string      `json:"unreadable,omitempty"` // files, with the reasons
	Groups     []GroupReport `json:"groups"`
	Different  bool          `json:"different"`
	Conclusion string        `json:"conclusion"` // one line
}

// GroupReport is what they tell of one group.
type GroupReport struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Ranks       []int    `json:"ranks"`
	Stands      []Stand  `json:"stands"`
	Difference  string   `json:"difference,omitempty"` // the first one
	Seq         int64    `json:"seq,omitempty"`        // where it is
	Guilty      []int    `json:"guilty,omitempty"`     // the ranks that differ from the others
	Notes       []string `json:"notes,omitempty"`

	at time.Time // when the ranks made the call of the difference
}

// Stand is how far ranks have come that have come equally far.
type Stand struct {
	Ranks  []int   `json:"ranks"`
	Called int64   `json:"called"` // the last collective
	Ended  int64   `json:"ended"`  // the last one that has ended well
	Now    string  `json:"now"`
	For    float64 `json:"for,omitempty"` // seconds, of the rank for which it is longest; 0 if unknown
}

// patience is how long an operation may be under way in a job where nothing is wrong. Records that
// are written on a signal are never of exactly the same moment.
const patience = time.Second

// member is one rank of a group.
type member struct {
	rank     int
	record   *Record // nil if there is none
	calls    map[int64][]*entry
	colls    []*entry // the same, in order
	first    int64    // the first collective of which the record has everything
	last     int64    // the last one that was called
	ended    int64
	messages []*entry
	latest   *entry // of all operations
}

// group is one group with all its members.
type group struct {
	name, description string
	ranks             []int
	members           []*member
	report            *GroupReport
}

// Compare lays records beside each other. unreadable are files that should have been among them.
func Compare(records []*Record, unreadable []string) *Report {
	r := &Report{Unreadable: unreadable, Groups: []GroupReport{}, Ranks: []int{}}
	for _, each := range records {
		r.Ranks = append(r.Ranks, each.Rank)
	}
	slices.Sort(r.Ranks)
	groups := groupsOf(records)
	for _, g := range groups {
		g.compare(groups)
		for _, m := range g.members {
			if m.record == nil && !slices.Contains(r.Missing, m.rank) {
				r.Missing = append(r.Missing, m.rank)
			}
		}
		r.Groups = append(r.Groups, *g.report)
	}
	slices.Sort(r.Missing)
	r.conclude()
	return r
}

func (r *Report) conclude() {
	var first *GroupReport
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Difference != "" && (first == nil || g.at.Before(first.at)) {
			first = g
		}
	}
	r.Different = first != nil || len(r.Missing) > 0 || len(r.Unreadable) > 0
	switch {
	case first != nil && len(r.Groups) > 1:
		r.Conclusion = fmt.Sprintf("group %s: %s", first.Name, first.Difference)
	case first != nil:
		r.Conclusion = first.Difference
	case len(r.Missing) > 0:
		r.Conclusion = fmt.Sprintf("there is no record of %s; the others do not differ", ranksText(r.Missing))
	case len(r.Unreadable) > 0:
		r.Conclusion = "the records that can be read do not differ"
	default:
		r.Conclusion = fmt.Sprintf("the records of %s do not differ", ranksText(r.Ranks))
	}
}

// groupsOf returns the groups of all records, those of the lowest ranks first.
func groupsOf(records []*Record) []*group {
	byKey := map[string]*group{}
	var all []*group
	records = slices.SortedFunc(slices.Values(records), func(a, b *Record) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, r := range records {
		for _, name := range slices.Sorted(maps.Keys(r.groups)) {
			of := r.groups[name]
			// Groups of other members may have the same name.
			key := fmt.Sprint(name, of.ranks)
			g := byKey[key]
			if g == nil {
				g = &group{name: name, description: of.description, ranks: of.ranks}
				byKey[key] = g
				all = append(all, g)
			}
		}
	}
	index := map[int]indexed{}
	for _, r := range records {
		index[r.Rank] = indexed{r, r.index()}
	}
	for _, g := range all {
		for _, rank := range g.ranks {
			of := index[rank]
			m := &member{rank: rank, record: of.record, calls: map[int64][]*entry{}}
			m.read(g, of.entries[g.name])
			g.members = append(g.members, m)
		}
	}
	return all
}

// indexed is a record with its operations by group.
type indexed struct {
	record  *Record
	entries map[string][]*entry
}

func (r *Record) index() map[string][]*entry {
	all := map[string][]*entry{}
	for i := range r.entries {
		e := &r.entries[i]
		all[e.group] = append(all[e.group], e)
	}
	return all
}

// read takes the operations of the group from the rank's record.
func (m *member) read(g *group, entries []*entry) {
	if m.record == nil {
		return
	}
	if of, ok := m.record.groups[g.name]; ok && !slices.Equal(of.ranks, g.ranks) {
		return // another group of this name
	}
	cut := false
	for _, e := range entries {
		if e.name == "coalesced" {
			continue
		}
		m.latest = e
		e.classify()
		if e.message {
			m.messages = append(m.messages, e)
			continue
		}
		if m.first == 0 {
			m.first, cut = e.seq, e.id > 1
		}
		m.colls = append(m.colls, e)
		m.calls[e.seq] = append(m.calls[e.seq], e)
		m.last = max(m.last, e.seq)
		if e.state == ended {
			m.ended = max(m.ended, e.seq)
		}
	}
	// The oldest call may be the rest of a batch, of which other parts were overwritten.
	if cut && len(m.calls) > 1 {
		m.first++
	}
}

// waited returns how long before the record was written an operation began.
func (m *member) waited(e *entry) time.Duration { return max(m.record.Written.Sub(e.begun), 0) }

// open returns the oldest operation that has not ended well.
func (m *member) open() *entry {
	for _, all := range [][]*entry{m.colls, m.messages} {
		if i := slices.IndexFunc(all, func(e *entry) bool { return e.state != ended }); i >= 0 {
			return all[i]
		}
	}
	return nil
}

// now says what a rank is doing in a group, and for how long.
func (m *member) now(g *group) (text string, so time.Duration) {
	if m.record == nil {
		return "no record: it was killed, or has written none", 0
	}
	if m.latest == nil {
		return "has made no call", 0
	}
	if e := m.open(); e != nil {
		if e.state == failed {
			return fmt.Sprintf("%s has failed", e.title(g)), 0
		}
		return "in " + e.title(g), m.waited(e)
	}
	since := m.latest.over
	if since.IsZero() {
		since = m.latest.begun
	}
	return "in no call", max(m.record.Written.Sub(since), 0)
}

// stands groups ranks that have come equally far.
func (g *group) stands() []Stand {
	var all []Stand
	for _, m := range g.members {
		text, so := m.now(g)
		s := Stand{Called: m.last, Ended: m.ended, Now: text}
		at := slices.IndexFunc(all, func(other Stand) bool {
			return other.Called == s.Called && other.Ended == s.Ended && other.Now == s.Now
		})
		if at < 0 {
			at = len(all)
			all = append(all, s)
		}
		all[at].Ranks = append(all[at].Ranks, m.rank)
		all[at].For = max(all[at].For, so.Seconds())
	}
	return all
}

// classify finds out what is true of all operations of this name.
func (e *entry) classify() {
	name := strings.ReplaceAll(strings.ToLower(e.name), "_", "")
	is := func(some ...string) bool {
		return slices.ContainsFunc(some, func(part string) bool { return strings.Contains(name, part) })
	}
	e.joint = is("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
	switch {
	case is("reducescatter"):
		e.agreed = e.in
	case is("allgather"):
		e.agreed = e.out
	case is("gather", "scatter", "alltoall"):
		e.agreed = -1
	default:
		e.agreed = e.in
	}
}

// at is what the ranks have made of one collective. Those that are in none of the lists have called
// it as a part of another batch.
type at struct {
	seq     int64
	present []*member
	absent  []*member
	lost    []*member // have no record
}

func (g *group) at(seq int64) (a at) {
	a.seq = seq
	for _, m := range g.members {
		switch {
		case m.record == nil:
			a.lost = append(a.lost, m)
		case m.last < seq:
			a.absent = append(a.absent, m)
		case m.calls[seq] != nil:
			a.present = append(a.present, m)
		}
	}
	return a
}

func (g *group) compare(all []*group) {
	g.report = &GroupReport{Name: g.name, Description: g.description, Ranks: g.ranks, Stands: g.stands()}
	from, latest := int64(0), (*member)(nil)
	for _, m := range g.members {
		if m.first > from {
			from, latest = m.first, m
		}
	}
	seqs := map[int64]bool{}
	var stopped []*member // before the records of others begin
	for _, m := range g.members {
		for seq := range m.calls {
			if seq >= from {
				seqs[seq] = true
			}
		}
		if m.record != nil && from > 1 && m.last < from {
			stopped = append(stopped, m)
		}
	}
	if len(stopped) > 0 && latest.last > from {
		byLast := func(a, b *member) int { return cmp.Compare(a.last, b.last) }
		g.note("%s called nothing after seq %d; the record of rank %d begins with seq %d", have(stopped),
			slices.MaxFunc(stopped, byLast).last, latest.rank, from)
	}
	for _, seq := range slices.Sorted(maps.Keys(seqs)) {
		if g.differs(g.at(seq), all) {
			break
		}
	}
	g.compareMessages()
}

// differs looks at one collective, and reports whether later ones need not be looked at.
func (g *group) differs(a at, all []*group) bool {
	if g.mismatched(a) {
		return true
	}
	var waiting, broken, done []*member
	longest, someone := time.Duration(0), a.present[0].calls[a.seq][0]
	for _, m := range a.present {
		state := ended
		for _, e := range m.calls[a.seq] {
			switch {
			case e.state == failed:
				state = failed
			case e.state == underWay && state == ended:
				state, longest = underWay, max(longest, m.waited(e))
			}
		}
		switch state {
		case ended:
			done = append(done, m)
		case underWay:
			waiting = append(waiting, m)
		default:
			broken = append(broken, m)
		}
	}
	held := len(broken) + len(waiting)
	switch {
	case held == 0 && len(a.absent) > 0:
		if someone.joint { // it has ended, so all have called it
			g.note("the record of %s is older than seq %d", named(a.absent), a.seq)
			return true
		}
		return false // nobody waits for them
	case held == 0:
		return false
	case len(broken) == 0 && longest < patience:
		if len(a.absent) > 0 {
			g.note("%s not called seq %d yet, which others are in for %s", have(a.absent), a.seq, secondsText(longest))
		}
		return true
	}
	r := g.report
	r.Seq, r.at = a.seq, someone.begun
	what := a.present[0].called(g, a.seq)
	if len(a.absent) > 0 {
		r.Guilty = numbers(a.absent)
		r.Difference = fmt.Sprintf("%s not called seq %d (%s)", have(a.absent), a.seq, what)
		joiner := ","
		if len(waiting) > 0 {
			r.Difference += fmt.Sprintf(", which %s in for %s", are(waiting), secondsText(longest))
			joiner = " and"
		}
		if len(broken) > 0 {
			r.Difference += fmt.Sprintf("%s which has failed on %s", joiner, named(broken))
		}
		for i, m := range a.absent {
			if i == most {
				r.Difference += "; …"
				break
			}
			r.Difference += m.elsewhere(g, all, someone)
		}
	} else if len(broken) > 0 {
		r.Guilty = numbers(broken)
		r.Difference = fmt.Sprintf("seq %d, %s, has failed on %s", a.seq, what, named(broken))
		if len(waiting) > 0 {
			r.Difference += fmt.Sprintf("; %s still in it", are(waiting))
		}
	} else {
		r.Guilty = numbers(waiting)
		r.Difference = fmt.Sprintf("seq %d, %s, has not ended on %s for %s", a.seq, what, named(waiting),
			secondsText(longest))
	}
	if len(a.absent) == 0 && len(done) > 0 {
		r.Difference += fmt.Sprintf("; it has ended on %s", named(done))
	}
	if len(a.lost) > 0 {
		r.Guilty = numbers(a.lost)
		r.Difference += fmt.Sprintf("; there is no record of %s", named(a.lost))
	}
	return true
}

// elsewhere says what an absent rank is doing instead.
func (m *member) elsewhere(g *group, all []*group, called *entry) string {
	if before := called.begun.Sub(m.record.Written); before > 0 {
		return fmt.Sprintf("; the record of rank %d was written %s before", m.rank, secondsText(before))
	}
	for _, other := range all {
		if other == g {
			continue
		}
		for _, same := range other.members {
			if same.rank != m.rank || same.record == nil {
				continue
			}
			if e := same.open(); e != nil && e.state == underWay && same.waited(e) > 0 {
				return fmt.Sprintf("; rank %d is in %s of group %s for %s", m.rank, e.title(other), other.name,
					secondsText(same.waited(e)))
			}
		}
	}
	text, so := m.now(g)
	if so > 0 {
		text += " for " + secondsText(so)
	}
	if text == "in no call" || strings.HasPrefix(text, "in ") {
		text = "is " + text
	}
	return fmt.Sprintf("; rank %d %s", m.rank, text)
}

// mismatched reports ranks that have called different things.
func (g *group) mismatched(a at) bool {
	var sides [][]*member
	for _, m := range a.present {
		side := slices.IndexFunc(sides, func(s []*member) bool { return same(s[0].calls[a.seq], m.calls[a.seq]) })
		if side < 0 {
			side = len(sides)
			sides = append(sides, nil)
		}
		sides[side] = append(sides[side], m)
	}
	if len(sides) == 1 {
		return false
	}
	// Those in the minority come first: most often they are wrong.
	slices.SortStableFunc(sides, func(a, b []*member) int { return cmp.Compare(len(a), len(b)) })
	var parts []string
	for i, side := range sides {
		if i == most {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%s called %s", have(side), side[0].called(g, a.seq)))
	}
	r := g.report
	r.Seq, r.at = a.seq, sides[0][0].calls[a.seq][0].begun
	r.Guilty = numbers(sides[0])
	r.Difference = fmt.Sprintf("seq %d: %s", a.seq, strings.Join(parts, "; "))
	return true
}

// same reports whether calls of two ranks fit together. What one of them does not tell counts as
// equal.
func same(a, b []*entry) bool {
	return slices.EqualFunc(a, b, func(a, b *entry) bool {
		return a.name == b.name && a.typ == b.typ && a.agreed == b.agreed &&
			(a.op == b.op || a.op == "" || b.op == "") && (a.root == b.root || a.root < 0 || b.root < 0)
	})
}

// most is how many lines of one kind a report has.
const most = 8

// compareMessages reports sends and receives that do not end.
func (g *group) compareMessages() {
	type open struct {
		m *member
		e *entry
	}
	var all []open
	for _, m := range g.members {
		for _, e := range m.messages {
			if e.state == failed || e.state == underWay && m.waited(e) >= patience {
				all = append(all, open{m, e})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b open) int { return a.e.begun.Compare(b.e.begun) })
	for i, each := range all {
		if i == most {
			g.note("%d more messages have not ended", len(all)-most)
			break
		}
		text := fmt.Sprintf("rank %d: %s has not ended for %s",
			each.m.rank, each.e.title(g), secondsText(each.m.waited(each.e)))
		if each.e.state == failed {
			text = fmt.Sprintf("rank %d: %s has failed", each.m.rank, each.e.title(g))
		}
		if other, theirs := g.partner(each.e); other != nil && each.e.state == underWay {
			text += other.answer(g, theirs)
		}
		if i == 0 && g.report.Difference == "" {
			g.report.Difference, g.report.at, g.report.Guilty = text, each.e.begun, []int{each.m.rank}
			continue
		}
		g.note("%s", text)
	}
}

// partner returns the other rank of a message, and the name of its part there.
func (g *group) partner(e *entry) (*member, string) {
	verb, me, peer := e.parts()
	if peer < 0 || peer >= len(g.members) {
		return nil, ""
	}
	if verb == "send" {
		return g.members[peer], fmt.Sprintf("recv %d<-%d", peer, me)
	}
	return g.members[peer], fmt.Sprintf("send %d->%d", peer, me)
}

// answer says whether the other rank of a message is doing its part.
func (m *member) answer(g *group, name string) string {
	if m.record == nil {
		return fmt.Sprintf("; there is no record of rank %d", m.rank)
	}
	for _, e := range m.messages {
		anyone := strings.HasPrefix(name, "recv") && strings.HasSuffix(e.name, "<-?")
		if (e.name == name || anyone) && e.state != ended {
			return fmt.Sprintf("; rank %d is in %s", m.rank, e.title(g))
		}
	}
	text, so := m.now(g)
	if so > 0 {
		text += " for " + secondsText(so)
	}
	verb, _, _ := strings.Cut(name, " ")
	return fmt.Sprintf("; rank %d has no such %s under way: %s", m.rank, verb, text)
}

func (g *group) note(format string, args ...any) {
	g.report.Notes = append(g.report.Notes, fmt.Sprintf(format, args...))
}
