package rdma_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	_ "github.com/goccl/goccl/internal/scratch"
)

// spec is what a rank is told.
type spec struct {
	Part        string // of parts
	Rank, Ranks int
	Options     string
}

// report is a line that a rank says.
type report struct {
	Pid     int           `json:",omitempty"` // with its address, first of all
	Address []byte        `json:",omitempty"`
	At      string        `json:",omitempty"` // what the driver is to do now
	Failed  string        `json:",omitempty"` // a collective
	Named   []int         `json:",omitempty"` // the culprits
	Done    bool          `json:",omitempty"` // all was right
	Calls   int           `json:",omitempty"`
	ByRDMA  int           `json:",omitempty"` // calls that began while the adapter was used
	Paths   string        `json:",omitempty"` // to the other ranks
	Took    time.Duration `json:",omitempty"`
	Held    string        `json:",omitempty"`

	came time.Time // to the driver
}

// What the driver is asked for.
const (
	atKill    = "kill"
	atCut     = "cut"
	atRestore = "restore"
)

// patience is how long a step may take: less than that names a hang on a loaded machine.
const patience = 60 * time.Second

// rank is a rank in a process of its own.
type rank struct {
	spec
	ctx   context.Context
	lines chan []byte // of the driver
	node  *ccl.Node
	comm  *ccl.Communicator
}

// The parts that ranks play.
var parts = map[string]func(*rank) error{
	"collectives": (*rank).collectives,
	"cuts":        (*rank).cuts,
	"loop":        (*rank).loop,
}

// beRank is the process of a rank. It ends with the connection of the driver.
func beRank(text string) error {
	r := &rank{ctx: context.Background(), lines: make(chan []byte)}
	if err := json.Unmarshal([]byte(text), &r.spec); err != nil {
		return err
	}
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				os.Exit(2)
			}
			r.lines <- line
		}
	}()
	return parts[r.Part](r)
}

func (r *rank) say(line report) {
	text, _ := json.Marshal(&line)
	fmt.Printf("%s\n", text)
}

// hear waits for a line of the driver.
func (r *rank) hear() ([]byte, error) {
	select {
	case line := <-r.lines:
		return line, nil
	case <-time.After(patience):
		return nil, errors.New("HANG: the driver says nothing")
	}
}

// join tells the driver the address of this rank, and joins those that it gets.
func (r *rank) join() error {
	opts, err := ccl.ParseOptions(r.Options)
	if err != nil {
		return err
	}
	if r.node, err = ccl.NewNode(opts.NodeOptions); err != nil {
		return err
	}
	endpoint, err := r.node.Open(ccl.Config{Name: r.Part, Rank: r.Rank, Size: r.Ranks, Timeout: patience,
		Options: opts.GroupOptions})
	if err != nil {
		return err
	}
	r.say(report{Pid: os.Getpid(), Address: endpoint.Address()})
	line, err := r.hear()
	if err != nil {
		return err
	}
	var addresses [][]byte
	if err := json.Unmarshal(line, &addresses); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	r.comm, err = endpoint.Join(ctx, addresses)
	return err
}

// paths says how the other ranks are reached.
func (r *rank) paths() string {
	var all []string
	for _, p := range r.comm.Paths() {
		all = append(all, fmt.Sprintf("%d from %s", p.Rank, p.From))
	}
	return strings.Join(all, ", ")
}

// byRDMA reports whether all other ranks are reached by an adapter now.
func (r *rank) byRDMA() bool {
	for _, p := range r.comm.Paths() {
		if !strings.HasPrefix(p.From, "rxe") {
			return false
		}
	}
	return true
}

// becomes waits until something holds.
func becomes(what func() bool) bool {
	for end := time.Now().Add(patience); !what(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// collectives compares each collective with the same among ranks of one process, bit for bit: at
// this level of determinism the algorithm makes no difference.
func (r *rank) collectives() error {
	if err := r.join(); err != nil {
		return err
	}
	node, local, err := ccl.Local(r.ctx, r.Ranks, ccl.GroupOptions{Determinism: 4})
	if err != nil {
		return err
	}
	defer node.Close()
	calls := 0
	for _, coll := range dtype.Collectives() {
		for i, n := range []int{1, 1000, 70_000} {
			root := i % r.Ranks
			wants, errs := make([][]float32, r.Ranks), make([]error, r.Ranks+1)
			var group sync.WaitGroup
			for rank, comm := range local {
				group.Go(func() { wants[rank], errs[rank] = call(comm, coll, n, root) })
			}
			group.Wait()
			var got []float32
			got, errs[r.Ranks] = call(r.comm, coll, n, root)
			if err := errors.Join(append(errs, same(got, wants[r.Rank]))...); err != nil {
				return fmt.Errorf("%v of %d, root %d: %w", coll, n, root, err)
			}
			calls++
		}
	}
	paths := r.paths()
	if err := ccl.Barrier(r.ctx, r.comm); err != nil { // the others have looked at their paths, too
		return err
	}
	r.say(report{Done: true, Calls: calls, Paths: paths})
	return errors.Join(r.comm.Close(), r.node.Close())
}

// call makes a call with blocks of n numbers, and returns what it has written.
func call(c *ccl.Communicator, coll dtype.Collective, n, root int) ([]float32, error) {
	rank, size := c.Rank(), c.Size()
	in := numbers(rank, n*coll.InBlocks(size, rank, root))
	out := make([]float32, n*coll.OutBlocks(size, rank, root))
	return out, c.Do(context.Background(),
		&ccl.Call{Coll: coll, Type: dtype.F32, Root: root, In: blocks(in, n), Out: blocks(out, n)})
}

func blocks(x []float32, n int) (all []ccl.Block) {
	for ; len(x) > 0; x = x[n:] {
		all = append(all, ccl.Block{Ptr: unsafe.Pointer(&x[0]), Count: n})
	}
	return all
}

// numbers are those that a rank has; their sums depend on the order of the additions.
func numbers(rank, n int) []float32 {
	random := rand.New(rand.NewPCG(uint64(rank), 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = random.Float32() - 0.5
	}
	return x
}

// same compares bits.
func same(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d numbers, want %d", len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("number %d of %d is %v, want %v", i, len(got), got[i], want[i])
		}
	}
	return nil
}

// loop calls until a call fails, and says whom it names.
func (r *rank) loop() error {
	if err := r.join(); err != nil {
		return err
	}
	x := make([]float32, 64<<10)
	for calls := 0; ; calls++ {
		err := ccl.AllReduce(r.ctx, r.comm, x, x, ccl.Sum)
		var failure *ccl.Error
		switch {
		case errors.As(err, &failure):
			r.say(report{Failed: err.Error(), Named: failure.Culprits(), Calls: calls})
			return r.node.Close()
		case err != nil:
			return err
		case calls == 20 && !becomes(r.byRDMA):
			return fmt.Errorf("the paths are not by an adapter: %s", r.paths())
		case calls == 20:
			r.say(report{At: atKill, Paths: r.paths()})
		}
	}
}

// The calls of the part with cuts: all-reduces of sizes in turn, each four times the one before. In
// each of the periods but the first and the last the port is closed before a call of the largest
// size, while it runs, and opened again.
const (
	sizes, leastSize, mostSize = 11, 8, 8 << 20
	calls                      = 500
	period                     = 4 * sizes
	cuts                       = 10
	cutAt                      = sizes - 1
	closedAt                   = cutAt + sizes
	restoreAt                  = closedAt + sizes
)

func (r *rank) cuts() error {
	begun := time.Now()
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil { // the runtime opens descriptors of its own for good
		l.Close()
	}
	if _, err := heldNow(); err != nil { // as does the first process
		return err
	}
	before, err := heldNow()
	if err == nil {
		err = r.join()
	}
	if err != nil {
		return err
	}
	const offsets = 4096 // each call begins at another number
	given := [2][]float32{numbers(0, mostSize/4+offsets), numbers(1, mostSize/4+offsets)}
	var lent [2][]float32
	for i := range lent {
		memory, err := r.node.Alloc(mostSize)
		if err != nil {
			return err
		}
		lent[i] = unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), mostSize/4)
	}
	out := make([]float32, mostSize/4)
	var warm held
	var packets int64
	byRDMA := 0
	for k := range calls {
		switch {
		case k == period-1:
			warm, err = heldNow()
		case k == period*(cuts+1):
			packets, err = sentPackets()
		case r.Rank == 0 && k/period >= 1 && k/period <= cuts:
			err = r.disturb(k % period)
		}
		if err != nil {
			return fmt.Errorf("call %d: %w", k, err)
		}
		if r.byRDMA() {
			byRDMA++
		}
		n, at := leastSize<<(2*(k%sizes))/4, k*7%offsets
		x, y := given[r.Rank][at:at+n], out[:n]
		if (k+k/period)%2 == 1 { // from registered memory
			copy(lent[0], x)
			x, y = lent[0][:n], lent[1][:n]
		}
		if err := ccl.AllReduce(r.ctx, r.comm, x, y, ccl.Sum); err != nil {
			return fmt.Errorf("call %d: %w", k, err)
		}
		a, b := given[0][at:], given[1][at:]
		for i, sum := range y {
			if want := a[i] + b[i]; math.Float32bits(sum) != math.Float32bits(want) {
				return fmt.Errorf("call %d: number %d of %d is %v, want %v", k, i, n, sum, want)
			}
		}
	}
	now, err := sentPackets()
	if err != nil {
		return err
	}
	if sent := now - packets; !r.byRDMA() || sent < mostSize/8/4096 {
		return fmt.Errorf("after the last cut the adapter has sent %d packets; %s", sent, r.paths())
	}
	last, err := warm.again()
	if err != nil {
		return err
	}
	paths := r.paths()
	if err := ccl.Barrier(r.ctx, r.comm); err != nil {
		return err
	}
	for i := range lent {
		if err := r.node.FreePointer(unsafe.Pointer(&lent[i][0])); err != nil {
			return err
		}
	}
	if err := errors.Join(r.comm.Close(), r.node.Close()); err != nil {
		return err
	}
	after, err := before.again()
	if err != nil {
		return err
	}
	r.say(report{Done: true, Calls: calls, ByRDMA: byRDMA, Paths: paths, Took: time.Since(begun), Held: fmt.Sprintf(
		"before %+v, after %d calls %+v, at the end %+v, closed %+v", before, period-1, warm, last, after)})
	return nil
}

// disturb has the driver close the port and open it again. The first call that goes on while the
// port is being closed is one of the largest.
func (r *rank) disturb(at int) error {
	switch at {
	case cutAt:
		r.say(report{At: atCut})
	case closedAt:
		_, err := r.hear()
		return err
	case restoreAt:
		if r.byRDMA() {
			return errors.New("the adapter is used, and its port is closed")
		}
		r.say(report{At: atRestore})
		if _, err := r.hear(); err != nil {
			return err
		}
		if !becomes(r.byRDMA) {
			return errors.New("HANG: the port is open, and the adapter is not used again")
		}
	}
	return nil
}

// held is what this process holds; queue pairs and regions are those of the whole machine.
type held struct{ Descriptors, Goroutines, Pairs, Regions int }

func heldNow() (held, error) {
	said, err := exec.Command("rdma", "-j", "resource", "show").Output()
	if err != nil {
		return held{}, err
	}
	var adapters []struct{ QP, MR int }
	if err := json.Unmarshal(said, &adapters); err != nil {
		return held{}, err
	}
	names, err := os.ReadDir("/proc/self/fd")
	h := held{Descriptors: len(names), Goroutines: runtime.NumGoroutine()}
	for _, a := range adapters {
		h.Pairs += a.QP
		h.Regions += a.MR
	}
	return h, err
}

// again waits until the process holds no more than it did.
func (h held) again() (now held, err error) {
	if !becomes(func() bool {
		now, err = heldNow()
		return err != nil || now.Descriptors <= h.Descriptors && now.Goroutines <= h.Goroutines &&
			now.Pairs <= h.Pairs && now.Regions <= h.Regions
	}) {
		err = fmt.Errorf("LEAK: there are %+v, before there were %+v", now, h)
	}
	return now, err
}

// sentPackets returns how many packets the adapters of this machine have sent.
func sentPackets() (sum int64, err error) {
	files, err := filepath.Glob("/sys/class/infiniband/*/ports/1/hw_counters/sent_pkts")
	if err == nil && len(files) == 0 {
		err = errors.New("there are no counters of adapters")
	}
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		n, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		sum, err = sum+n, errors.Join(err, readErr, parseErr)
	}
	return sum, err
}
