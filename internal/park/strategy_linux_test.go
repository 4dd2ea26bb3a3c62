package park

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BenchmarkStrategy compares ways to wait by measurement: processes that share memory as ranks do
// wait for each other's flags, each in one of several ways.
//
//	go test ./internal/park -run '^$' -bench Strategy -benchtime 9x
//
// prints the time of a step in nanoseconds, for a token that circulates and for a barrier of flags.

var (
	member = flag.String("park.member", "", "run as a member of BenchmarkStrategy: file,rank,ranks,pattern,work")
	span   = flag.Duration("park.span", 20*time.Millisecond, "how long BenchmarkStrategy measures a case at a time")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *member != "" {
		runMember(*member)
		return
	}
	os.Exit(m.Run())
}

// A member's page: its doorbell, its ready word, then a line of flags for each peer.
const (
	linesAt  = 2
	pageSize = 4096
)

type board struct {
	mem   []byte
	ranks int
}

func (b *board) word(rank, line int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b.mem[rank*pageSize+line*DoorbellSize]))
}

func (b *board) doorbell(rank int) *Doorbell { return DoorbellAt(b.mem[rank*pageSize:]) }

// stopBit in the value of a step marks the last step.
const stopBit = 1 << 31

// Words of the page behind the members' pages: the members' command and waiting strategy.
const (
	commandWord = iota
	strategyWord
)

const (
	commandWait = iota
	commandRun
	commandStop
)

// strategies lists ways to wait until look succeeds.
var strategies = []struct {
	name string
	wait func(doorbell *Doorbell, look func() bool)
}{
	{"spinner", spinnerWait},
	{"spin", phases(1<<30, 0)},
	{"futex", phases(0, 0)},
	{"pause1µs+futex", phases(40, 0)},
	{"yield1+futex", phases(0, 1)},
	{"yield16+futex", phases(0, 16)},
	{"yield500µs", phases(0, 1<<30)},
	{"pause1µs+yield", phases(40, 1<<30)},
}

func spinnerWait(doorbell *Doorbell, look func() bool) {
	var s Spinner
	for !look() {
		if !s.Turn() {
			sleepOn(doorbell, look)
			s.Reset()
		}
	}
	s.Reset()
}

// phases returns a wait that pauses up to spins times, then yields up to yields times or for half a
// millisecond, then sleeps.
func phases(spins, yields int) func(*Doorbell, func() bool) {
	return func(doorbell *Doorbell, look func() bool) {
		var since time.Time
		for {
			for range spins {
				if look() {
					return
				}
				Pause(1)
			}
			for i := range yields {
				if look() {
					return
				}
				yield()
				if i&7 == 7 {
					if since.IsZero() {
						since = time.Now()
					} else if time.Since(since) > 500*time.Microsecond {
						break
					}
				}
			}
			if look() || sleepOn(doorbell, look) {
				return
			}
		}
	}
}

func sleepOn(doorbell *Doorbell, look func() bool) bool {
	ticket := doorbell.Prepare()
	if look() {
		doorbell.Cancel()
		return true
	}
	doorbell.Sleep(ticket, time.Second)
	return false
}

// process is a member of the benchmark.
type process struct {
	board
	rank int
	span time.Duration // of work between waits
	mine *Doorbell
}

func runMember(text string) {
	args := strings.Split(text, ",")
	number := func(i int) int { n, _ := strconv.Atoi(args[i]); return n }
	file, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	info, err := file.Stat()
	if err != nil {
		panic(err)
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	p := &process{board: board{mem, number(2)}, rank: number(1), span: time.Duration(number(4))}
	p.mine = p.doorbell(p.rank)
	local := make([]Local, p.ranks)
	for i := range local {
		local[i] = Local{Process: strconv.Itoa(i), Cores: Affinity().String()}
	}
	Join(local)
	p.word(p.rank, 1).Store(1)
	for p.command() == commandWait {
		time.Sleep(time.Millisecond)
	}
	switch args[3] {
	case "ring":
		p.ring()
	case "barrier":
		p.barrier()
	case "compute": // as a rank's other threads do
		for p.command() != commandStop {
			work(time.Millisecond)
		}
	}
}

func (p *process) command() uint32 { return p.word(p.ranks, commandWord).Load() }

func (p *process) wait(look func() bool) {
	strategies[p.word(p.ranks, strategyWord).Load()].wait(p.mine, look)
}

func (p *process) post(to int, value uint32) {
	p.word(to, linesAt+p.rank).Store(value)
	p.doorbell(to).Ring()
}

// ring passes a token around; a step is one round.
func (p *process) ring() {
	next, prev := (p.rank+1)%p.ranks, (p.rank+p.ranks-1)%p.ranks
	in := p.word(p.rank, linesAt+prev)
	for step := uint32(1); ; step++ {
		if p.rank == 0 {
			value := step
			if p.command() == commandStop {
				value |= stopBit
			}
			p.post(next, value)
			p.word(0, 1).Store(step)
		}
		p.wait(func() bool { return in.Load()&^stopBit == step })
		work(p.span)
		value := in.Load()
		if p.rank != 0 {
			p.post(next, value)
		}
		if value&stopBit != 0 {
			return
		}
	}
}

// barrier makes every member wait for all others.
func (p *process) barrier() {
	for step := uint32(1); ; step++ {
		value := step
		if p.rank == 0 {
			if p.command() == commandStop {
				value |= stopBit
			}
			p.word(0, 1).Store(step)
		}
		work(p.span)
		for peer := range p.ranks {
			if peer != p.rank {
				p.post(peer, value)
			}
		}
		peer := 0
		p.wait(func() bool {
			for ; peer < p.ranks; peer++ {
				if v := p.word(p.rank, linesAt+peer).Load() &^ stopBit; peer != p.rank && v != step && v != step+1 {
					return false
				}
			}
			return true
		})
		if (value|p.word(p.rank, linesAt).Load())&^step == stopBit {
			return
		}
	}
}

// work computes for about d.
func work(d time.Duration) {
	for start := time.Now(); d > 0 && time.Since(start) < d; {
	}
}

// measure runs processes that wait by each strategy in turn, round after round, beside some that
// compute. It returns, by strategy, the nanoseconds per step of each round.
func measure(tb testing.TB, ranks, computing int, pattern string, work time.Duration, rounds int) [][]float64 {
	path := filepath.Join(tb.TempDir(), "board")
	if err := os.WriteFile(path, make([]byte, (ranks+1+computing)*pageSize), 0o600); err != nil {
		tb.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	mem, err := unix.Mmap(
		int(file.Fd()), 0, (ranks+1+computing)*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		tb.Fatal(err)
	}
	defer unix.Munmap(mem)
	b := &board{mem, ranks}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	var all []*exec.Cmd
	defer func() {
		for _, c := range all {
			c.Process.Kill()
			c.Wait()
		}
	}()
	for rank := range ranks + computing {
		if rank == ranks {
			pattern = "compute"
		}
		c := exec.Command(exe, fmt.Sprintf(
			"-park.member=%s,%d,%d,%s,%d", path, rank+rank/ranks, ranks, pattern, int(work)))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			tb.Fatal(err)
		}
		all = append(all, c)
	}
	for rank := range ranks {
		for until := time.Now().Add(10 * time.Second); b.word(rank, 1).Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				tb.Fatalf("member %d of %d has not started", rank, ranks)
			}
		}
	}
	command, strategy, step := b.word(ranks, commandWord), b.word(ranks, strategyWord), b.word(0, 1)
	step.Store(0)
	command.Store(commandRun)
	took := make([][]float64, len(strategies))
	for range rounds {
		for i := range strategies {
			strategy.Store(uint32(i))
			time.Sleep(*span / 4)
			from, t := step.Load(), time.Now()
			time.Sleep(*span)
			took[i] = append(took[i], float64(time.Since(t).Nanoseconds())/float64(max(step.Load()-from, 1)))
		}
	}
	strategy.Store(0)
	command.Store(commandStop)
	for len(all) > 0 {
		done := make(chan error, 1)
		go func(c *exec.Cmd) { done <- c.Wait() }(all[0])
		select {
		case err := <-done:
			if err != nil {
				tb.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			all[0].Process.Kill()
			<-done
			tb.Fatal("a member does not end")
		}
		all = all[1:]
	}
	return took
}

func BenchmarkStrategy(b *testing.B) {
	for _, c := range []struct {
		ranks, computing int
		pattern          string
		work             time.Duration
	}{
		{2, 0, "ring", 0},
		{2, 0, "barrier", 0},
		{2, 0, "barrier", 20 * time.Microsecond},
		{4, 0, "ring", 0},
		{4, 0, "barrier", 0},
		{4, 0, "barrier", 20 * time.Microsecond},
		{8, 0, "ring", 0},
		{8, 0, "barrier", 0},
		{8, 0, "barrier", 20 * time.Microsecond},
		{2, 2, "ring", 0},
		{2, 2, "barrier", 0},
		{4, 1, "barrier", 0},
	} {
		b.Run(fmt.Sprintf(
			"ranks=%d/computing=%d/%s/work=%v", c.ranks, c.computing, c.pattern, c.work), func(b *testing.B) {
			for i, steps := range measure(b, c.ranks, c.computing, c.pattern, c.work, b.N) {
				slices.Sort(steps)
				b.ReportMetric(steps[len(steps)/2], strategies[i].name+"_ns")
				b.Logf("%-16s quartiles %8.0f %8.0f %8.0f ns", strategies[i].name,
					steps[len(steps)/4], steps[len(steps)/2], steps[len(steps)*3/4])
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
