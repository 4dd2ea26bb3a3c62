package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// The parts that a rank plays. The words in quotes are what the drill tells it.
const (
	partCall      = "call"      // one round
	partLoop      = "loop"      // rounds until one fails
	partTogether  = "together"  // rounds until "stop", equally many on all ranks
	partAbsent    = "absent"    // nothing until "call"; then one round
	partAbort     = "abort"     // one round; the group is aborted at "act"
	partInterrupt = "interrupt" // one round, whose context ends with an interrupt
)

// The limits of a rank.
const (
	limitDescriptors = "descriptors" // none is left for joining
	limitMemory      = "memory"      // of addresses
	limitFiles       = "files"       // no file may grow, so no segment of shared memory can be made
)

// abortReason is what a rank aborts with.
const abortReason = "the drill aborts"

// warmUp is the number of rounds before the fault: paths are made on use, and programs of calls are
// kept from the second time on.
const warmUp = 2

// drillSpec tells a rank its part of a cell.
type drillSpec struct {
	Rank     int              `json:"rank"`
	Ranks    int              `json:"ranks"`
	Root     int              `json:"root"`
	Coll     dtype.Collective `json:"coll"`
	Elements int64            `json:"elements"` // of the whole vector
	Options  string           `json:"options"`
	Timeout  time.Duration    `json:"timeout"` // of operations
	Part     string           `json:"part"`
	Differs  string           `json:"differs,omitempty"` // what is different in this rank's calls; see differ
	Limit    string           `json:"limit,omitempty"`
	Pause    time.Duration    `json:"pause,omitempty"`   // before each round
	Child    string           `json:"child,omitempty"`   // the descriptors that a child of it holds
	Without  []int            `json:"without,omitempty"` // whom it leaves out when it shrinks the group
}

// said is a line that a rank prints.
type said struct {
	Word    string          `json:"word"`
	At      int64           `json:"at"` // by the clock that the processes of a machine share, in ns
	Address json.RawMessage `json:"address,omitempty"`
	Child   int             `json:"child,omitempty"` // its process
	End     *rankEnd        `json:"end,omitempty"`
	After   *rankAfter      `json:"after,omitempty"`
}

// The words of a rank.
const (
	wordAddress  = "address"
	wordReady    = "ready"     // joined and warmed up
	wordCalling  = "calling"   // the only round begins
	wordUnderWay = "under way" // some rounds are done, and more follow
	wordEnded    = "ended"
	wordAgain    = "again" // its address for joining once more
	wordAfter    = "after"
)

// rankEnd is how the rounds of a rank have ended.
type rankEnd struct {
	Error   *failure      `json:"error"` // nil: well
	During  string        `json:"during,omitempty"`
	Called  int64         `json:"called"` // when it made its last call, or the first one that failed
	Failed  int64         `json:"failed"` // when that call failed
	Rounds  int           `json:"rounds"`
	Slowest time.Duration `json:"slowest"` // of the rounds
	Wrong   int64         `json:"wrong"`   // elements
}

// rankAfter is the state of a rank after its end.
type rankAfter struct {
	Later *failure      `json:"later"` // of one more call
	Took  time.Duration `json:"took"`  // that call
	Close time.Duration `json:"close"`
	Left  []string      `json:"left,omitempty"` // descriptors that are still open
}

// failure is an error as a rank reports it.
type failure struct {
	Code     string `json:"code"`
	Culprits []int  `json:"culprits"`
	Text     string `json:"text"`
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	if e := (&ccl.Error{}); errors.As(err, &e) {
		f.Code, f.Culprits = e.Code.Error(), slices.Sorted(slices.Values(e.Culprits()))
	}
	return f
}

// player is one rank.
type player struct {
	spec    drillSpec
	out     *json.Encoder
	sockets tracked
	node    *ccl.Node
	comm    *ccl.Communicator
	drill   *exercise
	lists   chan []byte // of the addresses of all ranks

	mu    sync.Mutex
	words map[string]chan struct{}
}

// playRank is a whole rank; its only argument is a drillSpec.
func playRank(args []string, _ io.Writer) error {
	r := &player{out: json.NewEncoder(os.Stdout), words: map[string]chan struct{}{},
		lists: make(chan []byte, 1)}
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &r.spec) != nil {
		return fmt.Errorf("%s is for goccl drill's own use", rankProcess)
	}
	signal.Ignore(syscall.SIGXFSZ) // as Python does: writing beyond the limit is an error
	if err := startPolling(); err != nil {
		return err
	}
	before := descriptors()
	go r.listen(bufio.NewReader(os.Stdin))
	end := r.run()
	r.say(said{Word: wordEnded, End: end})
	if end.During != "" && r.spec.Limit != "" { // it ends, as a program does that cannot begin
		return r.close()
	}
	<-r.on("check")
	after := &rankAfter{}
	if r.comm != nil {
		begun := time.Now()
		after.Later = failureOf(ccl.Barrier(context.Background(), r.comm))
		after.Took = time.Since(begun)
	}
	begun := time.Now()
	err := r.close()
	after.Close = time.Since(begun)
	after.Left = left(before, descriptors)
	r.say(said{Word: wordAfter, After: after})
	return err
}

func (r *player) close() error {
	if r.node == nil {
		return nil
	}
	return r.node.Close()
}

func (r *player) say(line said) {
	line.At = time.Now().UnixNano()
	r.out.Encode(line)
}

// on returns a channel that is closed when the drill has said the word.
func (r *player) on(word string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.words[word] == nil {
		r.words[word] = make(chan struct{})
	}
	return r.words[word]
}

// listen hears the words of the drill. The process ends with the drill.
func (r *player) listen(in *bufio.Reader) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(1)
		}
		if line[0] == '[' {
			r.lists <- []byte(line)
		} else {
			close(r.on(line[:len(line)-1]))
		}
	}
}

// run joins the group and plays the part.
func (r *player) run() *rankEnd {
	if r.spec.Part == partSecond {
		return r.again(wordAddress)
	}
	end := r.first()
	if end.Error != nil && r.spec.Part == partAgain {
		return r.again(wordAgain)
	}
	return end
}

// first joins the group, and plays the part when the drill says so.
func (r *player) first() *rankEnd {
	if err := r.join(wordAddress); err != nil {
		during := "join"
		if r.node == nil {
			during = "open"
		}
		return &rankEnd{Error: failureOf(err), During: during}
	}
	end := &rankEnd{}
	for range warmUp {
		if err := r.drill.round(context.Background(), end); err != nil {
			end.Error, end.During = failureOf(err), "warm-up"
			return end
		}
	}
	ready := said{Word: wordReady}
	if r.spec.Child != "" {
		var err error
		if ready.Child, err = r.beget(); err != nil {
			end.Error, end.During = failureOf(err), "fork"
			return end
		}
	}
	*end = rankEnd{Wrong: end.Wrong}
	if r.spec.Differs != "" {
		var err error
		if r.drill, err = newExercise(r.comm, r.spec.differ()); err != nil {
			end.Error, end.During = failureOf(err), "other call"
			return end
		}
	}
	r.say(ready)
	<-r.on("go")
	end.Error = failureOf(r.play(end))
	return end
}

// join makes the node, if there is none yet, tells this rank's address with a word, and joins the
// group. Nothing is joined if it returns an error.
func (r *player) join(word string) error {
	opts, err := ccl.ParseOptions(r.spec.Options)
	if err != nil {
		return err
	}
	if r.spec.Limit == limitMemory || r.spec.Limit == limitFiles {
		if err := confine(r.spec.Limit); err != nil {
			return err
		}
	}
	node := r.node
	if node == nil {
		if node, err = ccl.NewNode(opts.NodeOptions); err != nil {
			return err
		}
		node.Track(r.sockets.note)
	}
	endpoint, err := node.Open(ccl.Config{
		Name: "drill", Rank: r.spec.Rank, Size: r.spec.Ranks, Timeout: time.Minute, Options: opts.GroupOptions})
	if err != nil {
		if r.node == nil {
			node.Close()
		}
		return err
	}
	r.node = node
	r.say(said{Word: word, Address: endpoint.Address()})
	var all []json.RawMessage
	if err := json.Unmarshal(<-r.lists, &all); err != nil {
		return err
	}
	addresses := make([][]byte, len(all))
	for rank := range all {
		addresses[rank] = bytes.TrimSpace(all[rank])
	}
	if r.spec.Limit == limitDescriptors {
		if err := confine(r.spec.Limit); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	if r.comm, err = endpoint.Join(ctx, addresses); err != nil {
		return err
	}
	r.comm.SetTimeout(r.spec.Timeout)
	plain := r.spec
	plain.Differs = ""
	r.drill, err = newExercise(r.comm, plain)
	return err
}

// play does what the part says.
func (r *player) play(end *rankEnd) error {
	ctx := context.Background()
	switch r.spec.Part {
	case partAbsent:
		<-r.on("call")
	case partAbort:
		go func() {
			<-r.on("act")
			r.comm.Abort(abortReason)
		}()
	case partInterrupt:
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	case partLoop, partTogether:
		return r.repeat(end)
	case partShrink:
		return r.shrink(r.repeat(end), end)
	}
	r.say(said{Word: wordCalling})
	return r.drill.round(ctx, end)
}

// repeat does rounds until one fails, or until all ranks stop.
func (r *player) repeat(end *rankEnd) error {
	ctx := context.Background()
	for {
		time.Sleep(r.spec.Pause)
		if err := r.drill.round(ctx, end); err != nil {
			return err
		}
		if end.Rounds == 3 {
			r.say(said{Word: wordUnderWay})
		}
		if r.spec.Part != partTogether {
			continue
		}
		stop := []int32{0}
		select {
		case <-r.on("stop"):
			stop[0] = 1
		default:
		}
		if err := ccl.AllReduce(ctx, r.comm, stop, stop, ccl.Max); err != nil || stop[0] == 1 {
			return err
		}
	}
}

// beget starts a child that holds descriptors of this process.
func (r *player) beget() (pid int, err error) {
	without := map[int]bool{}
	if r.spec.Child == childUntracked {
		without = r.sockets.open()
	}
	return startHolder(without)
}

// tracked is the set of sockets that a forked child closes.
type tracked struct {
	mu  sync.Mutex
	fds map[int]bool
}

func (t *tracked) note(fd int, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fds == nil {
		t.fds = map[int]bool{}
	}
	if open {
		t.fds[fd] = true
	} else {
		delete(t.fds, fd)
	}
}

func (t *tracked) open() map[int]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[int]bool{}
	for fd := range t.fds {
		all[fd] = true
	}
	return all
}

// hold is a process that does nothing but hold the descriptors of a rank. The drill ends it, or
// else it ends by itself.
func hold([]string, io.Writer) error {
	time.Sleep(cellLimit)
	return nil
}
