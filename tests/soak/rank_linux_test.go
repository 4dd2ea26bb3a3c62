package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/internal/mem"
)

// spec is what a rank is told.
type spec struct {
	Road    string
	Rank    int
	Folder  string // where ranks meet
	Seed    uint64
	Seconds float64
	Profile string // a folder for heap profiles; "" for none
}

// report is a line that a rank says at the end of each phase, or with which it ends.
type report struct {
	Rank       int
	Phase      int
	Operations uint64            // collectives and rounds of messages of groups whose first member this rank is
	Calls      uint64            // all of this rank
	By         map[string]uint64 `json:",omitempty"` // calls by collective; at the end
	Cancelled  uint64            // waits that were given up
	Cuts       uint64            // sockets that this rank has broken
	Healed     uint64            // connections that were made again
	RSS, PSS   int64             // bytes
	InUse      int64             // bytes of segments and blocks, as the library counts them
	Heap       int64             // bytes of objects of Go
	FDs        int
	Routines   int
	Over       bool   `json:",omitempty"` // all went well
	Wrong      string `json:",omitempty"`
}

const (
	turnsOfPhase = 40               // in each thread
	stuck        = 60 * time.Second // for this long no turn takes
	patience     = 45 * time.Second // the timeout of operations: it names whom they wait for
	gone         = 20 * time.Second // how long a path may be broken
	regrouped    = 8                // phases after which the last group is made anew
)

// soaker is a rank.
type soaker struct {
	spec
	node      *ccl.Node
	comms     []*ccl.Communicator // by group; nil where the rank is no member
	walkers   []*walker
	sockets   sockets
	made      int // how often the last group was made
	cancelled atomic.Uint64
	healed    atomic.Uint64
	stderr    *os.File
	profiles  int // written
}

// beRank is the process of a rank.
func beRank(text string) error {
	s := &soaker{stderr: os.Stderr}
	if err := json.Unmarshal([]byte(text), &s.spec); err != nil {
		return err
	}
	go func() { // the test ends with its pipe
		io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	err := s.countWarnings()
	if err == nil {
		err = s.soak()
	}
	if err != nil {
		s.say(&report{Wrong: err.Error()})
		// The others are to tell of this rank what they know, not that it is gone.
		time.Sleep(time.Second)
	}
	return err
}

func (s *soaker) say(r *report) {
	r.Rank = s.Rank
	text, _ := json.Marshal(r)
	fmt.Printf("%s\n", text)
}

// countWarnings counts the connections that were made again, and passes other warnings on.
func (s *soaker) countWarnings() error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	os.Stderr = to
	go func() {
		for lines := bufio.NewScanner(from); lines.Scan(); {
			if strings.Contains(lines.Text(), "carries on after") {
				s.healed.Add(1)
			} else {
				fmt.Fprintf(s.stderr, "rank %d: %s\n", s.Rank, lines.Text())
			}
		}
	}()
	return nil
}

// options are those of the road.
func (s *soaker) options() (o ccl.Options) {
	o.Transport, o.PeerTimeout, o.Registered, o.Recorder = s.Road, gone, 256<<20, 64
	switch s.Road {
	case "tcp":
		o.SocketIfname = "lo"
	case "hosts":
		o.Transport, o.SocketIfname = "auto", "eth"
	}
	return o
}

func (s *soaker) soak() error {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil { // the runtime opens descriptors of its own for good
		l.Close()
	}
	before := holdingNow()
	var err error
	if s.node, err = ccl.NewNode(s.options().NodeOptions); err != nil {
		return err
	}
	s.node.Track(s.sockets.track)
	s.comms = make([]*ccl.Communicator, len(members))
	for group := range members {
		if err := s.join(group); err != nil {
			return err
		}
	}
	for thread := range threads {
		w, err := newWalker(s, thread)
		if err != nil {
			return err
		}
		s.walkers = append(s.walkers, w)
	}
	go s.watch()
	before.routines++
	if err := s.phases(); err != nil {
		return err
	}
	for _, w := range s.walkers {
		for _, x := range w.registered {
			err = errors.Join(err, s.node.Free(x))
		}
	}
	for _, c := range s.comms {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err = errors.Join(err, s.node.Close()); err != nil {
		return err
	}
	if now, ok := before.again(15 * time.Second); !ok {
		return fmt.Errorf("LEAK: closing the node left %+v, before it there were %+v", now, before)
	}
	last := s.report(0)
	last.Over, last.By = true, map[string]uint64{}
	for _, w := range s.walkers {
		for coll, n := range w.by {
			last.By[coll] += n
		}
	}
	s.say(last)
	return nil
}

// phases makes all calls. All ranks end a phase after the same turns, with nothing in flight; then
// they agree whether another one follows.
func (s *soaker) phases() error {
	var warm holding
	begun := time.Now()
	cuts, stop := context.WithCancel(context.Background())
	defer stop()
	for phase := 0; ; phase++ {
		if err := s.phase(); err != nil {
			return err
		}
		s.say(s.report(phase))
		s.profile(time.Since(begun).Seconds())
		left := s.Seconds - time.Since(begun).Seconds()
		state := []int64{0} // 1: the next phase is the last, and has no cuts; 2: there was the last
		switch {
		case s.Rank == 0 && left <= 0:
			state[0] = 2
		case s.Rank == 0 && left <= min(3, s.Seconds/4):
			state[0] = 1
		}
		if err := ccl.Broadcast(context.Background(), s.comms[0], state, 0); err != nil {
			return err
		}
		if phase == 0 {
			warm = holdingNow()
		}
		if phase == 0 && state[0] == 0 {
			go s.cut(cuts)
			s.mark("cuts")
		}
		if state[0] > 0 {
			stop()
			os.Remove(filepath.Join(s.Folder, "cuts"))
		}
		if state[0] == 2 {
			break
		}
		if phase%regrouped == regrouped-1 {
			if err := s.regroup(); err != nil {
				return err
			}
		}
	}
	// What was on use is open in the first phase already, or nearly: hence the few more.
	warm.fds += 8
	warm.routines += 8
	if now, ok := warm.again(15 * time.Second); !ok {
		return fmt.Errorf("LEAK: at the end there are %+v, after the first phase there were (with 8 more) %+v", now, warm)
	}
	return nil
}

// mark makes a file in the folder.
func (s *soaker) mark(name string) {
	if s.Rank == 0 {
		os.WriteFile(filepath.Join(s.Folder, name), nil, 0o600)
	}
}

// phase has all threads make some turns.
func (s *soaker) phase() error {
	errs := make([]error, len(s.walkers))
	var group sync.WaitGroup
	for i, w := range s.walkers {
		group.Go(func() { errs[i] = w.walk(turnsOfPhase) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// join joins a group whose ranks meet in the folder.
func (s *soaker) join(group int) error {
	place := -1
	for i, rank := range members[group] {
		if rank == s.Rank {
			place = i
		}
	}
	if place < 0 {
		return nil
	}
	name := fmt.Sprintf("g%d.%d", group, s.made)
	endpoint, err := s.node.Open(ccl.Config{Name: name, Rank: place, Size: len(members[group]), Timeout: patience,
		Options: s.options().GroupOptions})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addresses, err := s.meet(ctx, name, place, len(members[group]), endpoint.Address())
	if err == nil {
		s.comms[group], err = endpoint.Join(ctx, addresses)
	}
	return err
}

// meet exchanges addresses in the folder.
func (s *soaker) meet(ctx context.Context, group string, place, size int, own []byte) ([][]byte, error) {
	file := func(place int) string { return filepath.Join(s.Folder, fmt.Sprintf("%s.%d", group, place)) }
	if err := os.WriteFile(file(place)+".new", own, 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(file(place)+".new", file(place)); err != nil {
		return nil, err
	}
	all := make([][]byte, size)
	for at := range all {
		for all[at] == nil {
			if all[at], _ = os.ReadFile(file(at)); all[at] == nil {
				if ctx.Err() != nil {
					return nil, fmt.Errorf("member %d did not come to group %s", at, group)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	return all, nil
}

// regroup leaves the last group and makes it anew. Nothing is in flight.
func (s *soaker) regroup() error {
	group := len(members) - 1
	if err := s.comms[group].Close(); err != nil {
		return err
	}
	s.made++
	return s.join(group)
}

// watch ends the process if a turn does not end, and says what every thread was doing.
func (s *soaker) watch() {
	for range time.Tick(time.Second) {
		for _, w := range s.walkers {
			at := w.at.Load()
			if at == nil || time.Since(at.since) < stuck {
				continue
			}
			text := fmt.Sprintf("HANG: thread %d has been in this for %v: %v", w.thread, stuck, at.what)
			for _, other := range s.walkers {
				if now := other.at.Load(); now != nil {
					text += fmt.Sprintf("; thread %d: %v", other.thread, now.what)
				}
			}
			stacks := make([]byte, 1<<20)
			fmt.Fprintf(s.stderr, "rank %d: %s\n%s\n", s.Rank, text, stacks[:runtime.Stack(stacks, true)])
			s.say(&report{Wrong: text})
			os.Exit(3)
		}
	}
}

func (s *soaker) report(phase int) *report {
	r := &report{Phase: phase, Cancelled: s.cancelled.Load(), Cuts: s.sockets.cuts.Load(), Healed: s.healed.Load()}
	for _, w := range s.walkers {
		r.Operations += w.operations
		for _, n := range w.by {
			r.Calls += n
		}
	}
	debug.FreeOSMemory() // what is left then is held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Heap = int64(m.HeapAlloc)
	r.RSS, r.PSS = resident()
	h := holdingNow()
	r.InUse, r.FDs, r.Routines = mem.InUse(), h.fds, h.routines
	return r
}

// profile writes what the heap holds after a third of the run, and after two thirds.
func (s *soaker) profile(seconds float64) {
	if s.Profile == "" || s.profiles == 2 || seconds < s.Seconds*float64(s.profiles+1)/3 {
		return
	}
	s.profiles++
	file, err := os.Create(filepath.Join(s.Profile, fmt.Sprintf("heap.%s.%d.%d", s.Road, s.Rank, s.profiles)))
	if err != nil {
		fmt.Fprintln(s.stderr, err)
		return
	}
	defer file.Close()
	pprof.WriteHeapProfile(file)
}

// resident returns the bytes of this process that are in memory, and its share of them.
func resident() (rss, pss int64) {
	text, _ := os.ReadFile("/proc/self/smaps_rollup")
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 {
			kib, _ := strconv.ParseInt(words[1], 10, 64)
			switch words[0] {
			case "Rss:":
				rss = kib << 10
			case "Pss:":
				pss = kib << 10
			}
		}
	}
	return rss, pss
}

// holding is what a process holds.
type holding struct{ fds, routines int }

func holdingNow() holding {
	names, _ := os.ReadDir("/proc/self/fd")
	return holding{len(names), runtime.NumGoroutine()}
}

// again waits until the process holds no more than it did.
func (h holding) again(d time.Duration) (now holding, ok bool) {
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		now = holdingNow()
		if now.fds <= h.fds && now.routines <= h.routines || time.Now().After(end) {
			return now, now.fds <= h.fds && now.routines <= h.routines
		}
	}
}

// sockets are those of the transports of this process.
type sockets struct {
	mu   sync.Mutex // held while a socket is cut, so that its number stays its own
	open []int
	cuts atomic.Uint64
}

func (k *sockets) track(fd int, open bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if open {
		k.open = append(k.open, fd)
		return
	}
	for i, each := range k.open {
		if each == fd {
			k.open = append(k.open[:i], k.open[i+1:]...)
			return
		}
	}
}

// cut breaks a TCP connection: mostly so that both ends are reset, and what is under way is lost.
func (k *sockets) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []int
	for _, fd := range k.open {
		name, err := unix.Getpeername(fd)
		if _, local := name.(*unix.SockaddrUnix); err == nil && !local {
			all = append(all, fd)
		}
	}
	if len(all) == 0 {
		return
	}
	fd := all[rand.IntN(len(all))]
	if rand.IntN(4) == 0 {
		unix.Shutdown(fd, unix.SHUT_RDWR)
	} else {
		disconnect(fd)
	}
	k.cuts.Add(1)
}

// disconnect resets a connection (connect(2): AF_UNSPEC dissolves the association).
func disconnect(fd int) {
	var none unix.RawSockaddr
	unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unix.SizeofSockaddrInet4)
}

// cut breaks connections until ctx ends.
func (s *soaker) cut(ctx context.Context) {
	if s.Road == "shm" {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(200+rand.IntN(1800)) * time.Millisecond):
			s.sockets.cut()
		}
	}
}
