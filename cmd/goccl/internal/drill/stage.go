package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/netlab"
	"github.com/goccl/goccl/transport/tcp"
)

const (
	cellLimit   = 20 * time.Second       // for everything in a cell
	joinTimeout = 3 * time.Second        // of a rank
	longTimeout = 10 * time.Second       // of operations, where not the timeout is to be seen
	settle      = 60 * time.Millisecond  // until ranks that wait have ceased to spin, and sleep
	peerTimeout = 2 * time.Second        // the least that GOCCL_PEER_TIMEOUT may be
	stopShort   = 250 * time.Millisecond // of the timeout of 0.5 s
)

// actor is a rank's process, as the drill sees it.
type actor struct {
	rank   int
	cmd    *exec.Cmd
	in     io.WriteCloser
	heard  chan said // closed when the process has closed its output
	said   map[string]said
	over   bool
	stderr tail
	child  int
}

// stage runs one cell.
type stage struct {
	ctx      context.Context
	lane     int // its wire between the hosts
	cell     cell
	fault    *drillFault
	timeout  time.Duration // after which operations have stalled
	self     string
	folder   string
	base     ccl.Options
	actors   []*actor
	relays   map[int]*relayed // by host
	deadline time.Time
	event    time.Time         // when the fault happened
	later    map[int]time.Time // when it did for some ranks
	culprit  int               // where one rank has the fault: that one
	culprits []int             // all of them
	others   []int
	wrong    []string
}

// perform runs a cell. It must be called on a thread that lives until all processes have ended.
func (d *driller) perform(lane int, c cell) *outcome {
	begun := time.Now()
	s := &stage{
		ctx: d.ctx, lane: lane, cell: c, fault: faultNamed(c.Fault), timeout: d.timeout, self: d.self, folder: d.folder,
		base:  d.options,
		event: begun, deadline: begun.Add(cellLimit), culprit: c.culprit(), culprits: c.culprits(),
		later: map[int]time.Time{}, relays: map[int]*relayed{},
	}
	for rank := range c.Ranks {
		if !slices.Contains(s.culprits, rank) {
			s.others = append(s.others, rank)
		}
	}
	err := s.play()
	if err != nil {
		s.wrong = append(s.wrong, err.Error())
	}
	o := s.verdict()
	s.end()
	for i, a := range s.actors { // complete only now
		o.Ranks[i].Stderr = inShort(a.stderr.String())
	}
	if proof := s.fault.proof; proof != nil && err == nil {
		if missing := proof(s); missing != "" {
			o.Complaints = append(o.Complaints, missing)
		}
	}
	o.Passed = len(o.Complaints) == 0
	o.Took = time.Since(begun)
	return o
}

// play runs the cell up to the ends of its ranks.
func (s *stage) play() error {
	if err := s.start(); err != nil {
		return err
	}
	early, err := s.join()
	if err != nil || early {
		return err
	}
	s.event = time.Now()
	s.tell("go", s.everyone()...)
	if err := s.fault.act(s); err != nil {
		return err
	}
	return s.check()
}

// check asks the ranks that have ended for their state.
func (s *stage) check() error {
	var left []int
	for _, a := range s.actors {
		if _, ended := a.said[wordEnded]; ended && !a.over {
			left = append(left, a.rank)
		}
	}
	s.tell("check", left...)
	var err error
	for _, rank := range left {
		if one := s.await(wordAfter, rank); one != nil && err == nil && !s.leaves(rank) {
			err = one
		}
	}
	return err
}

// leaves reports whether a rank that could not begin ends at once.
func (s *stage) leaves(rank int) bool {
	end := s.actors[rank].said[wordEnded].End
	return end != nil && end.During != "" && s.spec(rank).Limit != ""
}

// spec returns what a rank is told.
func (s *stage) spec(rank int) drillSpec {
	c := s.cell
	opts := s.base
	opts.Transport, opts.PeerTimeout, opts.Recorder = c.Road, 0, 64
	switch c.Road {
	case roadHosts:
		opts.Transport, opts.SocketIfname = "auto", "="+netlab.Interface(s.lane)
	case roadTCP:
		opts.SocketIfname, opts.SocketFamily = "lo", "ipv4"
	}
	spec := drillSpec{Rank: rank, Ranks: c.Ranks, Root: c.root(), Coll: c.Coll, Elements: c.elements(),
		Timeout: longTimeout, Part: partCall}
	s.fault.cast(s, rank, &spec, &opts)
	spec.Options = opts.String()
	return spec
}

// start starts the ranks.
func (s *stage) start() error {
	for rank := range s.cell.Ranks {
		a, err := s.launch(s.spec(rank))
		if err != nil {
			return err
		}
		s.actors = append(s.actors, a)
	}
	return nil
}

// launch starts the process of a rank.
func (s *stage) launch(spec drillSpec) (*actor, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	words := append(s.prefix(spec.Rank), s.self, "drill", rankProcess, string(text))
	a := &actor{rank: spec.Rank, cmd: exec.Command(words[0], words[1:]...), heard: make(chan said, 16),
		said: map[string]said{}}
	a.cmd.SysProcAttr, a.cmd.Stderr, a.cmd.WaitDelay = ranks.OwnGroup(), &a.stderr, 2*time.Second
	a.cmd.Dir, a.cmd.Env = s.folder, append(os.Environ(), "TMPDIR="+s.folder)
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go a.listen(out)
	return a, nil
}

// prefix returns the words before the command of a rank.
func (s *stage) prefix(rank int) []string {
	if s.cell.Road != roadHosts {
		return nil
	}
	return netlab.In(s.cell.host(rank))
}

// listen passes on the lines of a rank.
func (a *actor) listen(out io.Reader) {
	defer close(a.heard)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var s said
		if json.Unmarshal(line, &s) == nil {
			a.heard <- s
		}
	}
}

// join passes on the addresses, and returns when all ranks are ready. It reports whether one could
// not begin, or the fault was to happen meanwhile, and the cell is over.
func (s *stage) join() (early bool, err error) {
	if err := s.await(wordAddress, s.everyone()...); err != nil {
		return s.early(err)
	}
	addresses := make([]json.RawMessage, s.cell.Ranks)
	for rank, a := range s.actors {
		if addresses[rank], err = s.reroute(rank, a.said[wordAddress].Address); err != nil {
			return false, err
		}
	}
	if err := s.tellAddresses(addresses); err != nil {
		return false, err
	}
	if s.fault.joining != nil {
		if err := s.fault.joining(s); err != nil {
			return true, err
		}
		return true, s.check()
	}
	if err := s.await(wordReady, s.everyone()...); err != nil {
		return s.early(err)
	}
	for _, a := range s.actors {
		a.child = a.said[wordReady].Child
	}
	return false, nil
}

// tellAddresses has all ranks join. That is when a fault happens, as far as ranks cannot begin.
func (s *stage) tellAddresses(ofAll []json.RawMessage) error {
	text, err := json.Marshal(ofAll)
	if err != nil {
		return err
	}
	s.event = time.Now()
	s.tell(string(text), s.everyone()...)
	return nil
}

// early handles the end of ranks before all were ready. Where a rank is to be refused, the others
// have a moment to notice.
func (s *stage) early(err error) (bool, error) {
	if s.spec(s.culprit).Limit == "" {
		return false, err
	}
	if hang := s.await(wordEnded, s.culprit); hang != nil {
		return false, errors.Join(err, hang)
	}
	culprit := s.actors[s.culprit].said[wordEnded]
	s.later[s.culprit] = s.event
	s.event = time.Unix(0, culprit.At)
	if culprit.End.During == "open" { // the others never get its address
		return true, nil
	}
	if err := s.await(wordEnded, s.others...); err != nil {
		return true, err
	}
	return true, s.check()
}

// reroute returns the address of a rank as its peers are to see it.
func (s *stage) reroute(rank int, address json.RawMessage) (json.RawMessage, error) {
	if !s.fault.relay {
		return address, nil
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(address, &parts); err != nil {
		return nil, err
	}
	var fabrics map[string][]byte
	if err := json.Unmarshal(parts["fabrics"], &fabrics); err != nil {
		return nil, err
	}
	host := s.cell.host(rank)
	if s.cell.Road != roadHosts {
		host = 0
	}
	r := s.relays[host]
	if r == nil {
		var err error
		if r, err = newRelayed(s.self, s.prefix(rank)); err != nil {
			return nil, err
		}
		s.relays[host] = r
	}
	var err error
	fabrics["tcp"], err = tcp.Reroute(fabrics["tcp"], func(at netip.AddrPort) (uint16, error) {
		port, err := r.ask("to " + at.String())
		return uint16(port), err
	})
	if err != nil {
		return nil, err
	}
	if parts["fabrics"], err = json.Marshal(fabrics); err != nil {
		return nil, err
	}
	return json.Marshal(parts)
}

func (s *stage) everyone() (all []int) {
	for _, a := range s.actors {
		all = append(all, a.rank)
	}
	return all
}

// tell says a word to ranks. A rank that has ended does not hear it.
func (s *stage) tell(word string, ranks ...int) {
	for _, rank := range ranks {
		fmt.Fprintln(s.actors[rank].in, word)
	}
}

// await returns when all of the ranks have said a word, or with an error when one cannot say it any
// more.
func (s *stage) await(word string, ranks ...int) error {
	for _, rank := range ranks {
		a := s.actors[rank]
		late := time.NewTimer(time.Until(s.deadline))
		defer late.Stop()
		for {
			if _, done := a.said[word]; done {
				break
			}
			if end, done := a.said[wordEnded]; done && word != wordAfter {
				return fmt.Errorf("rank %d has ended (%s) before it was %s", rank, endText(end.End), word)
			}
			if a.over {
				return fmt.Errorf("the process of rank %d has ended before it was %s", rank, word)
			}
			select {
			case line, more := <-a.heard:
				if !more {
					a.over = true
				} else {
					a.said[line.Word] = line
				}
				continue
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			case <-late.C:
			}
			s.dump(a)
			return fmt.Errorf("HANG: rank %d was not %s after %v", rank, word, cellLimit)
		}
	}
	return nil
}

// dump has a rank print what its threads do.
func (s *stage) dump(a *actor) {
	a.cmd.Process.Signal(syscall.SIGCONT)
	a.cmd.Process.Signal(syscall.SIGQUIT)
	late := time.After(time.Second)
	for {
		select {
		case line, more := <-a.heard:
			if !more {
				a.over = true
				return
			}
			a.said[line.Word] = line
		case <-late:
			return
		}
	}
}

func endText(end *rankEnd) string {
	switch {
	case end == nil:
		return "?"
	case end.Error == nil:
		return "well"
	case end.During != "":
		return end.During + ": " + end.Error.Text
	}
	return end.Error.Text
}

// verdict judges what the ranks have said.
func (s *stage) verdict() *outcome {
	o := &outcome{Name: s.cell.String(), Cell: s.cell, Culprits: s.culprits, Complaints: s.wrong}
	for _, a := range s.actors {
		t := &testimony{Rank: a.rank}
		if ended, ok := a.said[wordEnded]; ok {
			t.End = ended.End
			from := s.event
			if later, ok := s.later[a.rank]; ok {
				from = later
			}
			at := ended.At
			if t.End.Failed != 0 {
				at = t.End.Failed
			}
			t.Since = max(0, time.Duration(at-max(from.UnixNano(), t.End.Called)))
		} else {
			t.Silence = s.silence(a)
		}
		if after, ok := a.said[wordAfter]; ok {
			t.After = after.After
		} else if t.End != nil && len(s.wrong) == 0 && !s.leaves(a.rank) {
			t.Silence = s.silence(a)
		}
		o.Ranks = append(o.Ranks, t)
		e := s.fault.expects(s, a.rank)
		if e == nil {
			continue
		}
		for _, what := range e.judge(t) {
			o.Complaints = append(o.Complaints, fmt.Sprintf("rank %d %s", a.rank, what))
		}
		if t.End != nil {
			took := t.Since
			if t.End.Error == nil {
				took = t.End.Slowest
			}
			o.Slowest = max(o.Slowest, took)
		}
	}
	return o
}

// silence says what is known of a rank that has not said what it should.
func (s *stage) silence(a *actor) string {
	if a.over {
		return "its process has ended"
	}
	var words []string
	for word := range a.said {
		words = append(words, word)
	}
	slices.Sort(words)
	return "it has only said: " + strings.Join(words, ", ")
}

// end ends all processes of the cell.
func (s *stage) end() {
	var group sync.WaitGroup
	for _, a := range s.actors {
		group.Go(a.end)
	}
	group.Wait()
	for _, a := range s.actors {
		if a.child != 0 {
			endHolder(a.child)
		}
	}
	for _, r := range s.relays {
		r.end()
	}
	if s.fault.undo != nil {
		s.fault.undo(s)
	}
}

// end ends the process of a rank.
func (a *actor) end() {
	a.in.Close()
	a.cmd.Process.Kill()
	for range a.heard { // Wait must come after the last read
	}
	a.cmd.Wait()
}

// inShort returns the beginning and the end of a text, as one line.
func inShort(text string) string {
	const most = 800
	text = strings.TrimSpace(text)
	if len(text) > 2*most {
		text = text[:most] + " … " + text[len(text)-most:]
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

// mostTail is how much of what a rank prints is kept.
const mostTail = 256 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - mostTail; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// command runs a command of the network's.
func command(words ...string) error {
	said, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %v: %s", strings.Join(words, " "), err, strings.TrimSpace(string(said)))
	}
	return nil
}
