//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// fake is a library of testdata/fakeverbs.c that no other test has open.
type fake struct {
	*library
	refuse   func(call string, code int32)
	refuseAt func(write int32)
	lay      func(field string) // wrongly
	live     func() int32       // objects that have not been given back
	acked    func() int32       // events and notices
	posted   func() int32       // writes and receives
	lists    func() int32       // of writes and receives
	notice   func()
	event    func(kind int32)
}

var builtFake = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "fakeverbs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "library")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", path, "testdata/fakeverbs.c").CombinedOutput()
	if err != nil {
		return out, err
	}
	return os.ReadFile(path)
})

func newFake(t testing.TB) *fake {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler (cc), which the fake libibverbs needs")
	}
	built, err := builtFake()
	require.NoError(t, err, string(built))
	path := filepath.Join(t.TempDir(), "libibverbs.so.1") // the loader tells libraries apart by their files
	require.NoError(t, os.WriteFile(path, built, 0o755))
	opened, err := open(path)
	require.NoError(t, err)
	f := &fake{library: opened.(*library)}
	f.sysfs = t.TempDir()
	f.files = func(descriptor int32) string {
		switch file := fileOfProcess(descriptor); file {
		case "":
			return ""
		case "/dev/null":
			return "/dev/infiniband/uverbs0"
		default:
			return eventFile
		}
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	for name, function := range map[string]any{"refuse": &f.refuse, "refuse_at": &f.refuseAt, "break": &f.lay,
		"live": &f.live, "acked": &f.acked, "posted": &f.posted, "lists": &f.lists, "notice": &f.notice,
		"event": &f.event} {
		purego.RegisterLibFunc(function, handle, "fake_"+name)
	}
	return f
}

// everything makes one of each, and returns what ends them in order, and the first error.
func (f *fake) everything() (end []func() error, p Pair, err error) {
	c, err := f.Open("fake0")
	if err != nil {
		return nil, nil, err
	}
	end = append(end, c.Close)
	r, err := c.Register(make([]byte, 64), true)
	if err != nil {
		return end, nil, err
	}
	end = append(end, r.Close)
	q, err := c.NewCompletions(8)
	if err != nil {
		return end, nil, err
	}
	end = append(end, q.Close)
	s, err := c.NewReceives(8)
	if err != nil {
		return end, nil, err
	}
	end = append(end, s.Close)
	p, err = c.NewPair(PairOptions{q, s, 8, 8})
	if err != nil {
		return end, nil, err
	}
	end = append(end, p.Close)
	if err = p.Connect(Connection{Port: 1, MTU: 1024}); err != nil {
		return end, nil, err
	}
	_, err = c.Device()
	return end, p, err
}

func endAll(t *testing.T, end []func() error) {
	t.Helper()
	for index := range end {
		require.NoError(t, end[len(end)-1-index]())
	}
}

// TestMisfits: a library that lays out anything differently is not used, and everything is given
// back.
func TestMisfits(t *testing.T) {
	f := newFake(t)
	before := descriptors(t)
	for _, name := range []string{"ibv_context.abi_compat", "verbs_context.sz", "ibv_context.device",
		"ibv_context.async_fd", "ibv_context.num_comp_vectors", "ibv_context.ops.poll_cq",
		"ibv_context.ops.req_notify_cq", "ibv_context.ops.post_srq_recv", "ibv_context.ops.post_send",
		"ibv_pd.context", "ibv_mr.context", "ibv_mr.pd", "ibv_mr.addr", "ibv_mr.length", "ibv_comp_channel.context",
		"ibv_comp_channel.fd", "ibv_cq.context", "ibv_cq.channel", "ibv_cq.cq_context", "ibv_cq.cqe",
		"ibv_srq.context", "ibv_srq.srq_context", "ibv_srq.pd", "ibv_qp.context", "ibv_qp.qp_context", "ibv_qp.pd",
		"ibv_qp.send_cq", "ibv_qp.recv_cq", "ibv_qp.srq", "ibv_qp.qp_type", "ibv_qp.qp_num",
		"ibv_qp_cap.max_inline_data", "ibv_port_attr.state", "ibv_port_attr.active_mtu", "ibv_port_attr.gid_tbl_len"} {
		f.lay(name)
		end, _, err := f.everything()
		require.ErrorIs(t, err, fault.NotSupported, name)
		require.ErrorContains(t, err, "libibverbs does not fit: "+name+" is ")
		endAll(t, end)
		require.Zero(t, f.live(), name)
		require.Equal(t, before, descriptors(t), name)
	}
	f.lay("")
	end, _, err := f.everything()
	require.NoError(t, err)
	endAll(t, end)
	require.Zero(t, f.live())
}

// TestRefusedCalls: whatever the system refuses is an error with its reason, and everything is
// given back.
func TestRefusedCalls(t *testing.T) {
	f := newFake(t)
	before := descriptors(t)
	for _, name := range []string{"ibv_get_device_list", "ibv_open_device", "ibv_query_device", "ibv_query_port",
		"ibv_query_gid", "ibv_alloc_pd", "ibv_reg_mr", "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_srq",
		"ibv_create_qp", "ibv_modify_qp"} {
		f.refuse(name, int32(syscall.ENOMEM))
		end, _, err := f.everything()
		require.ErrorIs(t, err, fault.System, name)
		require.ErrorIs(t, err, syscall.ENOMEM, name)
		require.ErrorContains(t, err, "RLIMIT_MEMLOCK", name)
		endAll(t, end)
		require.Zero(t, f.live(), name)
		require.Equal(t, before, descriptors(t), name)
	}
	// What cannot be closed stays as it is, and can be closed later.
	f.refuse("", 0)
	end, _, err := f.everything()
	require.NoError(t, err)
	for index, name := range []string{"ibv_destroy_qp", "ibv_destroy_srq", "ibv_destroy_cq", "ibv_dereg_mr",
		"ibv_dealloc_pd"} {
		each := end[len(end)-1-index]
		f.refuse(name, int32(syscall.EBUSY))
		require.ErrorIs(t, each(), syscall.EBUSY, name)
		f.refuse("", 0)
		require.NoError(t, each(), name)
		require.ErrorIs(t, each(), fault.Closed, name)
	}
	require.Zero(t, f.live())
}

func TestListOfAdapters(t *testing.T) {
	f := newFake(t)
	f.refuse("ibv_get_device_list", int32(syscall.ENOSYS))
	none, err := f.Devices()
	require.NoError(t, err, "a kernel without RDMA is no error")
	require.Empty(t, none)
	f.refuse("ibv_open_device", int32(syscall.EACCES))
	_, err = f.Devices()
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "adapter fake0 cannot be opened")
	f.refuse("", 0)
	all, err := f.Devices()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, []GID{{Index: 1, Value: [16]byte{15: 1}, Kind: RoCEv1}, {Index: 2, Value: [16]byte{15: 2},
		Kind: RoCEv1}}, all[0].Ports[0].GIDs, "the one that is zero is left out")
	_, err = f.Open("mlx5_0")
	require.ErrorContains(t, err, `no adapter "mlx5_0"; there are ["fake0"]`)
	require.Zero(t, f.live())
}

// TestPostedUpTo: Post says how many writes there were before the one that was refused, over all
// calls of C that it makes.
func TestPostedUpTo(t *testing.T) {
	f := newFake(t)
	end, p, err := f.everything()
	require.NoError(t, err)
	defer endAll(t, end)
	for _, at := range []int32{0, 1, 23, 24, 25, 47, 48, 59} {
		before := f.posted()
		f.refuseAt(before + at)
		n, err := p.Post(make([]Write, 60))
		require.EqualValues(t, at, n)
		require.ErrorIs(t, err, syscall.ENOMEM)
		require.Equal(t, before+at, f.posted())
	}
	f.refuseAt(-1)
	n, err := p.Post(make([]Write, 60))
	require.NoError(t, err)
	require.Equal(t, 60, n)
}

func TestReceivesInLists(t *testing.T) {
	f := newFake(t)
	c, err := f.Open("fake0")
	require.NoError(t, err)
	s, err := c.NewReceives(8)
	require.NoError(t, err)
	for _, n := range []int{0, 1, 63, 64, 65, 200} {
		posted, lists := f.posted(), f.lists()
		require.NoError(t, s.Post(n))
		require.EqualValues(t, n, f.posted()-posted)
		require.EqualValues(t, (n+63)/64, f.lists()-lists)
	}
	f.refuse("post_srq_recv", int32(syscall.ENOMEM))
	require.ErrorIs(t, s.Post(1), syscall.ENOMEM)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Post(1), fault.Closed)
	require.NoError(t, c.Close())
}

// TestNoticesAreAcknowledged: with one that is not, the queue could never be destroyed.
func TestNoticesAreAcknowledged(t *testing.T) {
	f := newFake(t)
	c, err := f.Open("fake0")
	require.NoError(t, err)
	q, err := c.NewCompletions(8)
	require.NoError(t, err)
	for range 3 {
		f.notice()
	}
	require.NoError(t, q.Take())
	require.EqualValues(t, 3, f.acked())
	require.NoError(t, q.Take())
	require.EqualValues(t, 3, f.acked())
	f.refuse("ibv_get_cq_event", int32(syscall.EIO))
	require.ErrorIs(t, q.Take(), syscall.EIO)
	f.refuse("poll_cq", 0)
	_, err = q.Poll(make([]Completion, 1))
	require.ErrorIs(t, err, fault.System)
	f.refuse("req_notify_cq", int32(syscall.EIO))
	require.ErrorIs(t, q.Arm(), syscall.EIO)
	require.NoError(t, q.Close())
	_, err = q.Poll(make([]Completion, 1))
	require.ErrorIs(t, err, fault.Closed)
	require.ErrorIs(t, q.Arm(), fault.Closed)
	require.ErrorIs(t, q.Take(), fault.Closed)
	require.NoError(t, c.Close())
}

func TestEventOfPair(t *testing.T) {
	f := newFake(t)
	end, p, err := f.everything()
	require.NoError(t, err)
	defer endAll(t, end)
	c := p.(*pair).context
	f.event(int32(PairFatal))
	e, ok, err := c.Event()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Event{Kind: PairFatal, Pair: p.Number()}, e)
	require.EqualValues(t, 1, f.acked())
	_, ok, err = c.Event()
	require.NoError(t, err)
	require.False(t, ok)
	f.refuse("ibv_get_async_event", int32(syscall.EIO))
	_, _, err = c.Event()
	require.ErrorIs(t, err, syscall.EIO)
}

func TestForkIsTooLate(t *testing.T) {
	f := newFake(t)
	f.refuse("ibv_fork_init", int32(syscall.EINVAL))
	err := f.prepareForks()
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "RDMAV_FORK_SAFE=1")
	f.refuse("ibv_fork_init", int32(syscall.ENOMEM))
	require.ErrorIs(t, f.prepareForks(), fault.System)
}
