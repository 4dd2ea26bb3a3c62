//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

// TestAdapter needs an adapter: make test-rdma runs it where the kernel emulates one.
func TestAdapter(t *testing.T) {
	adapter(t)
	for _, each := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"AdapterDescribed", testAdapterDescribed},
		{"Writes", testWrites},
		{"ManyWrites", testManyWrites},
		{"MorePostedThanRoom", testMorePostedThanRoom},
		{"WrongKey", testWrongKey},
		{"FailFlushes", testFailFlushes},
		{"NobodyAnswers", testNobodyAnswers},
		{"Notices", testNotices},
		{"Events", testEvents},
		{"CloseInOrder", testCloseInOrder},
		{"NothingLeaks", testNothingLeaks},
		{"Refusals", testRefusals},
		{"LockLimit", testLockLimit},
		{"Allocations", testAllocations},
	} {
		t.Run(each.name, each.run)
	}
}

// inGuest reports whether the machine is one of ci/rdma-vm.sh, which has an adapter and may be
// changed.
func inGuest() bool { return os.Getenv("RDMA_VM_GUEST") != "" }

// adapter returns the first adapter with a port that is active and has a GID.
func adapter(t testing.TB) (Library, Device, Port, GID) {
	t.Helper()
	lib, err := Open()
	if err != nil && !inGuest() {
		require.ErrorIs(t, err, fault.NotSupported)
		t.Skip(err)
	}
	require.NoError(t, err)
	devices, err := lib.Devices()
	require.NoError(t, err)
	for _, d := range devices {
		for _, p := range d.Ports {
			gids := slices.DeleteFunc(slices.Clone(p.GIDs), func(g GID) bool {
				return p.Ethernet && (g.Kind != RoCEv2 || !g.Addr().Is4())
			})
			if p.Active && len(gids) > 0 {
				return lib, d, p, gids[0]
			}
		}
	}
	require.False(t, inGuest(), "no adapter with an active port: %+v", devices)
	t.Skip("this machine has no RDMA adapter with an active port")
	return nil, Device{}, Port{}, GID{}
}

// NeedAdapter skips a test where there is no adapter.
func NeedAdapter(t testing.TB) { adapter(t) }

// loop has two pairs of one adapter that are connected to each other, and memory.
type loop struct {
	t           testing.TB
	context     Context
	port        Port
	gid         GID
	completions Completions
	receives    Receives
	region      Region
	memory      []byte
	from, to    Pair
	took        []Completion
}

const loopPosted, loopReceives = 128, 512

func newLoop(t testing.TB) *loop {
	t.Helper()
	lib, device, port, gid := adapter(t)
	l := &loop{t: t, port: port, gid: gid, memory: make([]byte, 1<<20)}
	var err error
	l.context, err = lib.Open(device.Name)
	require.NoError(t, err)
	l.completions, err = l.context.NewCompletions(1024)
	require.NoError(t, err)
	l.receives, err = l.context.NewReceives(loopReceives)
	require.NoError(t, err)
	l.region, err = l.context.Register(l.memory, true)
	require.NoError(t, err)
	l.from, l.to = l.pair(), l.pair()
	l.connect(l.from, l.to, 5)
	l.connect(l.to, l.from, 5)
	t.Cleanup(func() {
		all := []interface{ Close() error }{l.from, l.to, l.region, l.receives, l.completions, l.context}
		for _, each := range all {
			require.NoError(t, each.Close())
		}
	})
	return l
}

func (l *loop) pair() Pair {
	l.t.Helper()
	p, err := l.context.NewPair(PairOptions{l.completions, l.receives, loopPosted, 64})
	require.NoError(l.t, err)
	return p
}

// sequence is where the numbers of a pair's packets start.
func sequence(p Pair) uint32 { return p.Number() * 77 & 0xffffff }

func (l *loop) connect(p, peer Pair, retries uint8) {
	l.t.Helper()
	require.NoError(l.t, p.Connect(Connection{Port: l.port.Number, GID: l.gid.Index, MTU: l.port.MTU,
		Sequence: sequence(p), Remote: Remote{peer.Number(), sequence(peer), l.port.LID, l.gid.Value},
		Timing: Timing{16, retries, 7}}))
}

// piece is a part of the memory.
func (l *loop) piece(at, bytes int) Piece {
	return Piece{uint64(addressOf(&l.memory[at])), uint32(bytes), l.region.Local()}
}

// write is one of bytes from a place to another.
func (l *loop) write(from, to, bytes int) Write {
	return Write{From: [2]Piece{l.piece(from, bytes)}, To: uint64(addressOf(&l.memory[to])), Key: l.region.Remote()}
}

func (l *loop) post(p Pair, writes ...Write) {
	l.t.Helper()
	n, err := p.Post(writes)
	require.NoError(l.t, err)
	require.Equal(l.t, len(writes), n)
}

// take returns the next completions. Emulated adapters are slow, but not as slow as that.
func (l *loop) take(n int) []Completion {
	l.t.Helper()
	l.took = l.took[:0]
	into := make([]Completion, 7)
	for deadline := time.Now().Add(30 * time.Second); len(l.took) < n; {
		got, err := l.completions.Poll(into[:min(len(into), n-len(l.took))])
		require.NoError(l.t, err)
		l.took = append(l.took, into[:got]...)
		if got == 0 {
			require.True(l.t, time.Now().Before(deadline), "%d of %d completions", len(l.took), n)
			runtime.Gosched()
		}
	}
	return l.took
}

func (l *loop) nothingLeft() {
	l.t.Helper()
	n, err := l.completions.Poll(make([]Completion, 1))
	require.NoError(l.t, err)
	require.Zero(l.t, n)
}

// ready reports whether a descriptor becomes readable.
func ready(t testing.TB, descriptor int, within time.Duration) bool {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		require.NoError(t, err)
		return n == 1
	}
}

func testAdapterDescribed(t *testing.T) {
	lib, device, port, gid := adapter(t)
	t.Logf("%+v", device)
	require.Positive(t, device.Pairs)
	require.Positive(t, device.Entries)
	require.Positive(t, device.Posted)
	require.Positive(t, device.Receive)
	require.Positive(t, device.Regions)
	require.Contains(t, []int{256, 512, 1024, 2048, 4096}, port.MTU)
	require.Equal(t, "active", port.State)
	require.GreaterOrEqual(t, port.Message, 1<<20)
	require.Positive(t, port.Rate)
	require.True(t, gid.Addr().IsValid())
	if port.Ethernet {
		require.NotEmpty(t, gid.Interface)
	}
	c, err := lib.Open(device.Name)
	require.NoError(t, err)
	require.Contains(t, c.(Holder).Descriptors(), c.Events())
	again, err := c.Device()
	require.NoError(t, err)
	require.Equal(t, device, again)
	require.NoError(t, c.Close())
	_, err = c.Device()
	require.ErrorIs(t, err, fault.Closed)
	_, _, err = c.Event()
	require.ErrorIs(t, err, fault.Closed)
	_, err = c.Register(make([]byte, 8), true)
	require.ErrorIs(t, err, fault.Closed)
	require.ErrorIs(t, c.Close(), fault.Closed)
	_, err = lib.Open("none0")
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, device.Name)
}

func testWrites(t *testing.T) {
	l := newLoop(t)
	for index := range 4096 {
		l.memory[index] = byte(index * 7)
	}
	require.NoError(t, l.receives.Post(8))

	plain := l.write(0, 8192, 4096)
	plain.Cookie, plain.Complete = 1, true
	l.post(l.from, plain)
	done := l.take(1)[0]
	require.Equal(t, Completion{Cookie: 1, Pair: l.from.Number()}, done)
	require.Equal(t, l.memory[:4096], l.memory[8192:8192+4096])

	// Two pieces, with an immediate: both sides learn of it.
	two := l.write(100, 16384, 1000)
	two.From[1] = l.piece(3000, 50)
	two.Cookie, two.Complete, two.Tell, two.Immediate = 2, true, true, 0x01020304
	l.post(l.from, two)
	l.expect(2, 1050, 0x01020304)
	require.Equal(t, slices.Concat(l.memory[100:1100], l.memory[3000:3050]), l.memory[16384:16384+1050])

	// Inline: the memory is free when Post returns, and its key does not count.
	require.GreaterOrEqual(t, l.from.Inline(), 64)
	short := l.write(200, 32768, 64)
	short.From[0].Key = 0xdead
	short.Cookie, short.Complete, short.Tell, short.Inline, short.Immediate = 3, true, true, true, 0xfffffffe
	want := bytes.Clone(l.memory[200:264])
	l.post(l.from, short)
	clear(l.memory[200:264])
	l.expect(3, 64, 0xfffffffe)
	require.Equal(t, want, l.memory[32768:32768+64])

	// An immediate alone, the other way.
	l.from, l.to = l.to, l.from
	l.post(l.from, Write{Cookie: 4, Immediate: 5, Tell: true, Complete: true})
	l.expect(4, 0, 5)
	l.nothingLeft()
}

// expect takes the completion of a write, and the arrival of what it told.
func (l *loop) expect(cookie uint64, bytes, immediate uint32) {
	l.t.Helper()
	for _, c := range l.take(2) {
		c.Vendor = 0
		if c.Arrival {
			c.Cookie = 0
			require.Equal(l.t, Completion{Pair: l.to.Number(), Arrival: true, Immediate: immediate, Bytes: bytes}, c)
		} else {
			require.Equal(l.t, Completion{Cookie: cookie, Pair: l.from.Number()}, c)
		}
	}
	require.NotEqual(l.t, l.took[0].Arrival, l.took[1].Arrival)
}

// testManyWrites posts more than one call of C takes, and refills the shared receive queue in
// batches. Writes of a pair arrive in order.
func testManyWrites(t *testing.T) {
	l := newLoop(t)
	require.NoError(t, l.receives.Post(loopReceives))
	const rounds, each = 20, 100
	posted := 0
	for range rounds {
		writes := make([]Write, each)
		for index := range writes {
			writes[index] = l.write(0, 4096+index*8, 8)
			writes[index].Tell, writes[index].Immediate = true, uint32(posted)
			writes[index].Cookie, writes[index].Complete = uint64(posted), index == each-1
			posted++
		}
		first := uint32(posted - each)
		l.post(l.from, writes...)
		arrivals := uint32(0)
		for _, c := range l.take(each + 1) {
			require.Equal(t, Success, c.Status)
			if c.Arrival {
				require.Equal(t, first+arrivals, c.Immediate)
				arrivals++
			} else {
				require.Equal(t, uint64(posted-1), c.Cookie)
			}
		}
		require.EqualValues(t, each, arrivals)
		require.NoError(t, l.receives.Post(each))
	}
	l.nothingLeft()
}

// testMorePostedThanRoom fills the queue of a pair: the writes that had room complete.
func testMorePostedThanRoom(t *testing.T) {
	l := newLoop(t)
	writes := make([]Write, 1<<16)
	for index := range writes {
		writes[index] = l.write(0, 4096, 1)
		writes[index].Cookie, writes[index].Complete = uint64(index), true
	}
	// The pair that it is connected to has failed, so that nothing leaves the queue.
	require.NoError(t, l.to.Fail())
	n, err := l.from.Post(writes)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "made for 128 writes, takes no more after")
	require.GreaterOrEqual(t, n, loopPosted)
	require.NoError(t, l.from.Fail())
	for left := n; left > 0; {
		for _, c := range l.take(min(left, 512)) {
			require.Equal(t, uint64(n-left), c.Cookie)
			require.NotEqual(t, Success, c.Status)
			left--
		}
	}
	l.nothingLeft()
}

// testWrongKey: what no peer was given is not written to, and the pair fails.
func testWrongKey(t *testing.T) {
	for name, spoil := range map[string]func(*loop, *Write){
		"key":     func(l *loop, w *Write) { w.Key ^= 0x5500 },
		"address": func(l *loop, w *Write) { w.To += uint64(len(l.memory)) },
		"local only": func(l *loop, w *Write) {
			own, err := l.context.Register(l.memory, false)
			require.NoError(l.t, err)
			l.t.Cleanup(func() { require.NoError(l.t, own.Close()) })
			w.Key = own.Remote()
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t)
			l.memory[0] = 9
			bad := l.write(0, 4096, 1)
			bad.Cookie = 7
			spoil(l, &bad)
			l.post(l.from, bad)
			done := l.take(1)[0]
			require.Equal(t, RemoteAccess, done.Status)
			require.Equal(t, uint64(7), done.Cookie)
			require.Equal(t, l.from.Number(), done.Pair)
			require.Zero(t, l.memory[4096])
			after := l.write(0, 4096, 1)
			after.Cookie = 8
			l.post(l.from, after)
			done = l.take(1)[0]
			require.Equal(t, Flushed, done.Status)
			require.Equal(t, uint64(8), done.Cookie)
		})
	}
}

// testFailFlushes: all that was posted and has not ended ends with Flushed, also where it would not
// have completed.
func testFailFlushes(t *testing.T) {
	l := newLoop(t)
	require.NoError(t, l.from.Fail())
	l.post(l.from, l.write(0, 4096, 1), l.write(0, 4096, 1))
	for _, c := range l.take(2) {
		require.Equal(t, Flushed, c.Status)
		require.Equal(t, l.from.Number(), c.Pair)
	}
	require.NoError(t, l.from.Fail())
	l.nothingLeft()
}

// testNobodyAnswers: a pair whose peer has gone gives up.
func testNobodyAnswers(t *testing.T) {
	l := newLoop(t)
	lonely, gone := l.pair(), l.pair()
	l.connect(lonely, gone, 1)
	require.NoError(t, gone.Close())
	l.post(lonely, l.write(0, 4096, 1))
	require.Equal(t, RetriesExceeded, l.take(1)[0].Status)
	require.NoError(t, lonely.Close())
}

func testNotices(t *testing.T) {
	l := newLoop(t)
	require.NoError(t, l.receives.Post(64))
	descriptor := l.completions.Descriptor()
	require.NoError(t, l.completions.Take(), "there is none")
	for round := range uint32(20) {
		require.NoError(t, l.completions.Arm())
		require.False(t, ready(t, descriptor, 0))
		l.post(l.from, Write{Tell: true, Immediate: round})
		require.True(t, ready(t, descriptor, 30*time.Second))
		require.NoError(t, l.completions.Take())
		require.False(t, ready(t, descriptor, 0), "taken")
		require.Equal(t, round, l.take(1)[0].Immediate)
	}
	// One notice for each Arm.
	l.post(l.from, Write{Tell: true}, Write{Tell: true})
	l.take(2)
	require.False(t, ready(t, descriptor, 0))
}

func testEvents(t *testing.T) {
	l := newLoop(t)
	_, ok, err := l.context.Event()
	require.NoError(t, err)
	require.False(t, ok)
	require.False(t, ready(t, l.context.Events(), 0))
	if !inGuest() {
		t.Skip("events need a change of the machine's interfaces")
	}
	for _, each := range []struct {
		set  string
		want EventKind
	}{{"down", PortError}, {"up", PortActive}} {
		out, err := exec.Command("ip", "link", "set", l.gid.Interface, each.set).CombinedOutput()
		require.NoError(t, err, string(out))
		require.True(t, ready(t, l.context.Events(), 30*time.Second))
		e, ok, err := l.context.Event()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, Event{Kind: each.want, Port: l.port.Number}, e)
		require.False(t, ready(t, l.context.Events(), 0))
	}
}

func testCloseInOrder(t *testing.T) {
	l := newLoop(t)
	require.ErrorIs(t, l.context.Close(), fault.Invalid)
	require.ErrorIs(t, l.completions.Close(), fault.System, "pairs use it")
	require.ErrorIs(t, l.receives.Close(), fault.System, "pairs use it")
	l.post(l.from, l.write(0, 4096, 8)) // it still works
	require.NoError(t, l.from.Fail())

	other := newLoop(t)
	_, err := l.context.NewPair(PairOptions{other.completions, l.receives, 1, 0})
	require.ErrorIs(t, err, fault.Invalid)

	p := l.pair()
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Close(), fault.Closed)
	_, err = p.Post([]Write{{}})
	require.ErrorIs(t, err, fault.Closed)
	require.ErrorIs(t, p.Fail(), fault.Closed)
	require.ErrorIs(t, p.Connect(Connection{MTU: 1024, Port: 1}), fault.Closed)
	r, err := l.context.Register(l.memory, true)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Close(), fault.Closed)
}

// descriptors returns how many this process has.
func descriptors(t testing.TB) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

func testNothingLeaks(t *testing.T) {
	l := newLoop(t)
	lib, device, _, _ := adapter(t)
	before := descriptors(t)
	regions, contexts := 1000, 50
	if testing.Short() {
		regions, contexts = 100, 5
	}
	for range regions {
		r, err := l.context.Register(l.memory[:4096], true)
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
	for range contexts {
		c, err := lib.Open(device.Name)
		require.NoError(t, err)
		q, err := c.NewCompletions(16)
		require.NoError(t, err)
		s, err := c.NewReceives(16)
		require.NoError(t, err)
		p, err := c.NewPair(PairOptions{q, s, 16, 0})
		require.NoError(t, err)
		for _, each := range []interface{ Close() error }{p, s, q, c} {
			require.NoError(t, each.Close())
		}
	}
	require.Equal(t, before, descriptors(t))
}

func testRefusals(t *testing.T) {
	l := newLoop(t)
	_, device, _, _ := adapter(t)
	_, err := l.context.NewCompletions(device.Entries + 1)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, device.Name)
	_, err = l.context.NewReceives(device.Receive * 4)
	require.ErrorIs(t, err, fault.System)
	_, err = l.context.NewPair(PairOptions{l.completions, l.receives, device.Posted + 1, 0})
	require.ErrorIs(t, err, fault.System)
	_, err = l.context.NewPair(PairOptions{l.completions, l.receives, 1, 1 << 19})
	require.ErrorContains(t, err, "524288 bytes inline")
	_, err = l.context.Register(nil, true)
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorIs(t, l.to.Connect(Connection{Port: 1, MTU: 1000}), fault.Invalid)
	require.ErrorIs(t, l.to.Connect(Connection{Port: 1, MTU: 1024, Timing: Timing{Retries: 8}}), fault.Invalid)
}

// testLockLimit: whoever reads the error of a limit on locked memory knows what to do.
func testLockLimit(t *testing.T) {
	l := newLoop(t)
	const limit = 1 << 20
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: min(limit, before.Max), Max: before.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)) }()
	err := withoutCapability(unix.CAP_IPC_LOCK, func() error {
		_, err := l.context.Register(make([]byte, 2*limit), true)
		return err
	})
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "cannot register 2M")
	require.ErrorContains(t, err, "RLIMIT_MEMLOCK is 1024 KiB")
	require.ErrorContains(t, err, "ulimit -l unlimited")
	require.ErrorContains(t, err, "--ulimit memlock=-1")
}

// withoutCapability does something in a thread that lacks a capability, which root has. The thread
// ends: uverbs would serve one of other credentials than the file was opened with no more.
func withoutCapability(capability int, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		data[capability/32].Effective &^= 1 << (capability % 32)
		if err == nil {
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// testAllocations: what happens for every message allocates nothing. (purego takes the blocks of
// its calls from a pool.)
func testAllocations(t *testing.T) {
	if UnderRace {
		t.Skip("the race detector has pools forget")
	}
	l := newLoop(t)
	require.NoError(t, l.receives.Post(8))
	into := make([]Completion, 16)
	writes := []Write{l.write(0, 4096, 64), l.write(64, 8192, 8)}
	writes[1].Complete = true
	for name, do := range map[string]func() error{
		"Poll":          func() error { _, err := l.completions.Poll(into); return err },
		"Arm":           l.completions.Arm,
		"Take":          l.completions.Take,
		"Receives.Post": func() error { return l.receives.Post(1) },
		"Post": func() error {
			if _, err := l.from.Post(writes); err != nil {
				return err
			}
			for {
				if n, err := l.completions.Poll(into); n > 0 || err != nil {
					return err
				}
			}
		},
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}), name)
	}
}

func BenchmarkAdapter(b *testing.B) {
	l := newLoop(b)
	b.Run("EmptyPoll", func(b *testing.B) {
		b.ReportAllocs()
		into := make([]Completion, 16)
		for range b.N {
			if n, err := l.completions.Poll(into); n != 0 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
	for _, bytes := range []int{4 << 10, 1 << 20} {
		b.Run("Write"+humanize.FormatSize(int64(bytes)), func(b *testing.B) { l.stream(b, bytes, 1, 1) })
	}
	// As ib_write_bw does: many are posted at a time, and few make a completion.
	b.Run("Stream64KiB", func(b *testing.B) { l.stream(b, 64<<10, loopPosted, loopPosted/2) })
}

// stream writes, with up to most writes posted, of which every each-th makes a completion.
func (l *loop) stream(b *testing.B, bytes, most, each int) {
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	into, write := make([]Completion, most), []Write{l.write(0, 0, bytes)}
	for posted, done := 0, 0; done < b.N; {
		for posted < b.N && posted-done < most {
			posted++
			write[0].Complete = posted%each == 0 || posted == b.N
			write[0].Cookie = uint64(posted)
			if _, err := l.from.Post(write); err != nil {
				b.Fatal(err)
			}
		}
		n, err := l.completions.Poll(into)
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range into[:n] {
			if c.Status != Success {
				b.Fatal(c)
			}
			done = int(c.Cookie)
		}
	}
}
