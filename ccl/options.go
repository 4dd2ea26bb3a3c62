package ccl

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/humanize"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/cuda/group"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/tcp"
)

// Options are the choices of a user. The zero value means the defaults. The text form of Options
// has one NAME=value per line, with the names of the environment variables. String and ParseOptions
// are inverses of each other.
type Options struct {
	Transport      string        // "auto" (shared memory on one host, RDMA or TCP between hosts), "shm", "rdma", "tcp"
	SocketIfname   string        // interfaces of TCP: "eth0,eth1", "^docker,lo", prefixes; "" for all reachable ones
	SocketFamily   string        // of TCP: "ipv4", "ipv6" or "" for both
	Streams        int           // TCP sockets between two processes; 0: one for each wire as fast as the best
	Port           string        // of TCP: "29600", "29600-29700" or "" for any
	Algo           string        // "all_reduce=ring,broadcast=binomial"; "" for the library's choice
	BuffSize       int           // bytes of windows that a rank may have in a group; 0 means 2 MiB
	BlockingWait   bool          // the Python package: wait of an operation on a device waits for the device
	CudaBuffSize   int           // bytes of host memory by which a device group moves collectives; 0 means 16 MiB
	CudaGraphs     string        // how many CUDA graphs can have calls of a device group; "" means 128
	CudaInterpret  string        // whether short calls on devices are one kernel: "auto", "0", "1"; "" means "0"
	CudaRegistered string        // registered memory of each device, like "4G"; "" or "0" for none
	CudaRoute      string        // of device groups: "auto", "staged", "windows", "host-windows"; "" means "auto"
	Timeout        time.Duration // of operations and of joining; 0 for the caller's
	Debug          string        // "WARN", "INFO", "TRACE"
	Determinism    int           // 2, 3 or 4; see docs/determinism.md. 0 means DefaultDeterminism
	Plan           string        // files with plans of the user's own, separated by commas
	Verify         string        // "tested", "always": when plans of the catalogue are proven
	Tune           string        // file with a table of measurements, as `goccl tune --measure` writes it
	Spin           string        // microseconds that a wait stays awake; "" to learn it
	FastBF16       bool          // sums of BF16 by AVX512_BF16, where all ranks have it
	Futures        string        // the Python package: "wait", or "" for "callbacks": what get_future gives
	Registered     string        // room for registered memory, like "16G"; "0" for none, "" for the default
	IBHCA          string        // adapters of RDMA: "mlx5", "=mlx5_0:1,mlx5_1", "^mlx5_3"; "" for all
	IBGIDIndex     string        // of RDMA: index of the GID of all ports; "" or "-1" to choose
	IBTimeout      int           // of RDMA: a write is tried again after 4.096 µs × 2^this; 0 for 16
	IBRetryCnt     int           // of RDMA: how often; 0 for 5
	IBTC           int           // of RDMA: traffic class of packets
	IBSL           int           // of RDMA: service level of packets
	PeerTimeout    time.Duration // of TCP: how long a path may be broken or silent; 0 for 10 s
	Checksum       bool          // of TCP: fragments carry checksums
	TLS            bool          // of TCP: connections are encrypted
	SecretFile     string        // of TCP: a file whose contents all processes must have; "" for none
	Recorder       int           // how many of the last operations of a group are remembered; 0 for none
	RecordSignal   string        // "USR2", "USR1", "none": the signal at which package pgbackend writes them to a file
	NoTop          bool          // package pgbackend does not serve goccl top
	serviceLinks   []string      // names that ParseOptions has left out, since Kubernetes has set them
	WarnAfter      time.Duration // when to warn of an operation that does not end; 0 for 10 s, negative for never
}

//go:generate go test -count=1 -run ^TestOptionsOfPython$ . -rewrite

// option is one row of the table that defines everything about options: parsing, printing,
// documentation and goccl.Options of Python.
type option struct {
	Name    string // of the environment variable
	Default string
	Python  string // the type in Python
	Doc     string
	Agreed  bool // must be the same on all ranks
	get     func(*Options) string
	set     func(*Options, string) error
}

var optionTable = []option{
	{"GOCCL_ALGO", "", "str",
		"Algorithm for a collective, as all_reduce=ring,broadcast=binomial; `goccl plan list` shows them.", true,
		func(o *Options) string { return o.Algo }, func(o *Options, v string) error { o.Algo = v; return nil }},
	{"GOCCL_BLOCKING_WAIT", "0", "bool",
		"1: wait() of an operation on CUDA tensors returns when the device has ended it, and raises its error. 0: it " +
			"makes the current stream wait, and returns at once.", false,
		func(o *Options) string { return map[bool]string{true: "1"}[o.BlockingWait] },
		func(o *Options, v string) (err error) { o.BlockingWait, err = onOff(v); return err }},
	{"GOCCL_BUFFSIZE", "2M", "int | str",
		"Most bytes of windows that a rank has in a group, such as 512K or 8M, from 128K to 32M: half of it " +
			"is what one operation uses at a time, longer ones run in pieces. All groups of a process share 32M; " +
			"of what is left a group of n ranks takes an nth at most.", true,
		func(o *Options) string { return sizeText(o.BuffSize) },
		func(o *Options, v string) error { return setSize(&o.BuffSize, v, leastBuffSize, mostBuffSize) }},
	{"GOCCL_CHECKSUM", "0", "bool",
		"1: everything that this process sends by TCP carries CRC-32C checksums. What arrives damaged is sent " +
			"again; a path that does it three times within a minute is named and given up. The first group of a process " +
			"that may use TCP decides.",
		false,
		func(o *Options) string { return map[bool]string{true: "1"}[o.Checksum] },
		func(o *Options, v string) (err error) { o.Checksum, err = onOff(v); return err }},
	{"GOCCL_CUDA_BUFFSIZE", "16M", "int | str",
		"Bytes of host memory through which a group moves the collectives of CUDA tensors, such as 4M or 64M, from 256K " +
			"to 1G; a quarter of it is what one piece of a call uses at most. Messages have as many again.", true,
		func(o *Options) string { return sizeText(o.CudaBuffSize) },
		func(o *Options, v string) error {
			return setSize(&o.CudaBuffSize, v, leastCudaBuffSize, mostCudaBuffSize)
		}},
	{"GOCCL_CUDA_GRAPHS", strconv.Itoa(defaultCudaGraphs), "int",
		"How many CUDA graphs can have collectives of a group over windows at the same time. Each has a quarter of " +
			"GOCCL_CUDA_BUFFSIZE for itself until it is destroyed; there is memory for 8, and for 8 more when they are " +
			"captured. 0: none.", true,
		func(o *Options) string { return o.CudaGraphs },
		func(o *Options, v string) error { o.CudaGraphs = v; return o.checkGraphs() }},
	{"GOCCL_CUDA_INTERPRET", group.InterpretNever.String(), "str",
		"Whether a call over windows in the memory of devices, of up to 64 KiB, is one kernel, which waits for the kernels " +
			"of the peers. 0: never. auto: if each rank has a device of its own; two devices have not run it yet. 1: always; " +
			"ranks of several processes that share a device then wait for their turn on it.", true,
		func(o *Options) string { return o.CudaInterpret },
		func(o *Options, v string) error { o.CudaInterpret = v; return nil }},
	{"GOCCL_CUDA_REGISTERED", "0", "int | str",
		"Registered memory of each CUDA device that this process uses (goccl.empty with device=\"cuda\", " +
			"goccl.mem_pool), such as 512M or 8G: it is taken when the first group on the device is made. 0: none. The first " +
			"group of a process on a device decides. See docs/registered.md.", false,
		func(o *Options) string { return o.CudaRegistered },
		func(o *Options, v string) error { o.CudaRegistered = v; return o.checkCudaRegistered() }},
	{"GOCCL_CUDA_ROUTE", group.RouteAuto, "str",
		"How a group moves the collectives of CUDA tensors. staged: through memory of the host, where the CPU reduces " +
			"them. windows: the devices copy and reduce by themselves, in memory of theirs that all ranks reach, half of " +
			"GOCCL_CUDA_BUFFSIZE at a time; for ranks on one device, or on devices of a host that reach each other, and " +
			"within hosts that have the same number of ranks. " +
			"host-windows: the same in memory of the host, for ranks on any devices of a host. auto: the best of these that " +
			"works, which the ranks find out when they join.", true,
		func(o *Options) string { return o.CudaRoute },
		func(o *Options, v string) error { o.CudaRoute = v; return nil }},
	{"GOCCL_DEBUG", "WARN", "str",
		"What is printed to standard error. WARN: what is probably a mistake. INFO: also how ranks are " +
			"joined, and which plan runs for which collective and sizes. TRACE: also the plan of each call that has another " +
			"size than the one before.", false,
		func(o *Options) string { return o.Debug },
		func(o *Options, v string) error { o.Debug = strings.ToUpper(v); return nil }},
	{"GOCCL_DETERMINISM", strconv.Itoa(DefaultDeterminism), "int",
		"2: the same bits on every rank and in every run. 3: also independent of message size and bucket " +
			"split. 4: also of the algorithm.", true,
		func(o *Options) string {
			if o.Determinism == 0 {
				return ""
			}
			return strconv.Itoa(o.Determinism)
		}, setDeterminism},
	{"GOCCL_FAST_BF16", "0", "bool",
		"1: where the CPUs of all ranks have AVX512_BF16, sums of bf16 use its conversions, which make " +
			"subnormal results zero; see docs/dtypes.md for what that gains.", true,
		func(o *Options) string { return map[bool]string{true: "1"}[o.FastBF16] },
		func(o *Options, v string) (err error) { o.FastBF16, err = onOff(v); return err }},
	{"GOCCL_FUTURES", FuturesCallbacks, "str",
		"What get_future() of an operation on CPU tensors gives. callbacks: a future that completes when the operation " +
			"ends; the ranks match collectives in its callbacks by the callback. wait: it waits for the operation, and gives a " +
			"complete future, whose callbacks run where they are given, so that their collectives have an order " +
			"(docs/torch.md).", true,
		func(o *Options) string { return o.Futures }, setFutures},
	{"GOCCL_IB_GID_INDEX", "-1", "int",
		"Index of the GID that RDMA uses in the tables of all ports. -1: on RoCE the one that reaches furthest (RoCE v2 " +
			"with an IPv4 address, then with an IPv6 address, then RoCE v1), on InfiniBand the first. Where it is not set, " +
			"the Python package takes NCCL_IB_GID_INDEX.", false,
		func(o *Options) string { return o.IBGIDIndex },
		func(o *Options, v string) error { o.IBGIDIndex = v; return o.checkGID() }},
	{"GOCCL_IB_HCA", "", "str",
		"Adapters that RDMA may use, and their ports: names or prefixes (mlx5), = for exactly these names (=mlx5_0:1,mlx5_1), " +
			"or ^ and those to leave out (^mlx5_3); a process uses 4 ports, near ones and fast ones first. Where it is not set, the Python package " +
			"takes NCCL_IB_HCA.", false,
		func(o *Options) string { return o.IBHCA },
		func(o *Options, v string) error { o.IBHCA = v; _, err := rdma.ParseAdapters(v); return err }},
	{"GOCCL_IB_RETRY_CNT", strconv.Itoa(rdma.DefaultRetries), "int",
		"How often RDMA sends something again that is not acknowledged, 1 to 6, before the path counts as broken.", false,
		func(o *Options) string { return countText(o.IBRetryCnt) },
		func(o *Options, v string) error { return setCount(&o.IBRetryCnt, v, 1, rdma.MostRetries) }},
	{"GOCCL_IB_SL", "0", "int",
		"Service level of what RDMA sends on InfiniBand, or priority on RoCE, 0 to 15.", false,
		func(o *Options) string { return countText(o.IBSL) },
		func(o *Options, v string) error { return setCount(&o.IBSL, v, 0, rdma.MostService) }},
	{"GOCCL_IB_TC", "0", "int",
		"Traffic class of what RDMA sends, 0 to 255.", false,
		func(o *Options) string { return countText(o.IBTC) },
		func(o *Options, v string) error { return setCount(&o.IBTC, v, 0, rdma.MostClass) }},
	{"GOCCL_IB_TIMEOUT", strconv.Itoa(rdma.DefaultTimeout), "int",
		"After how long RDMA sends something again that is not acknowledged: 4.096 µs × 2^this, 14 (67 ms) to 22 (17 s).",
		false,
		func(o *Options) string { return countText(o.IBTimeout) },
		func(o *Options, v string) error {
			return setCount(&o.IBTimeout, v, rdma.LeastTimeout, rdma.MostTimeout)
		}},
	{"GOCCL_PEER_TIMEOUT", "10s", "timedelta | float | str",
		"How long the path to a process on another host may be broken or silent, in seconds or with a unit, 2s at " +
			"least; then the process counts as lost. Until then a connection that breaks is made again. The first " +
			"group of a process that may use TCP decides.", false,
		func(o *Options) string { return timeText(o.PeerTimeout) },
		func(o *Options, v string) (err error) { o.PeerTimeout, err = parseTime(v); return err }},
	{"GOCCL_PLAN", "", "str",
		"Files with plans of your own, separated by commas; each is verified, and used for the collective, " +
			"ranks and sizes that it declares.", false,
		func(o *Options) string { return o.Plan }, func(o *Options, v string) error { o.Plan = v; return nil }},
	{"GOCCL_PORT", "", "int | str",
		"Port that a process listens on for TCP, or a range of ports of which the first free one is taken " +
			"(29600-29700): a host needs as many as it has ranks. Not set: any port. The first group of a process that " +
			"may use TCP decides.", false,
		func(o *Options) string { return o.Port },
		func(o *Options, v string) error { o.Port = v; _, _, err := o.ports(); return err }},
	{"GOCCL_RECORDER", "0", "int",
		"How many of a group's last operations are remembered, for the file that is written when one fails " +
			"(docs/torch.md); 0: none. The Python package asks for 4096.", false,
		func(o *Options) string { return countText(o.Recorder) }, setRecorder},
	{"GOCCL_RECORD_SIGNAL", "USR2", "str",
		"Signal at which a process of the Python package writes the last operations of its groups to that file, also " +
			"while it computes or waits (docs/flight.md): USR2, USR1, or none. A program that handles the signal itself, " +
			"or ignores it, keeps it. The first group of a process decides.", false,
		func(o *Options) string { return o.RecordSignal }, setRecordSignal},
	{"GOCCL_REGISTERED", "16G", "int | str",
		"Room for registered memory of a process (goccl.empty), such as 512M or 64G: addresses only, memory " +
			"is taken as it is used. 0: none, as where it is more than an eighth of what ulimit -v leaves. The first group of a " +
			"process decides. See docs/registered.md.", false,
		func(o *Options) string { return o.Registered },
		func(o *Options, v string) error { o.Registered = v; return o.checkRegistered() }},
	{"GOCCL_SECRET_FILE", "", "str",
		"File with a secret that all processes of a job must have to connect by TCP, 16 bytes at least, which only " +
			"its owner can read: the store alone is then not enough to join (docs/trust.md). The first group of a process " +
			"that may use TCP decides.", false,
		func(o *Options) string { return o.SecretFile },
		func(o *Options, v string) error { o.SecretFile = v; return nil }},
	{"GOCCL_SOCKET_FAMILY", "", "str",
		"ipv4 or ipv6: TCP uses only addresses of this family (AF_INET and AF_INET6 mean the same). The first group " +
			"of a process that may use TCP decides.", false,
		func(o *Options) string { return o.SocketFamily }, setFamily},
	{"GOCCL_SOCKET_IFNAME", "", "str",
		"Network interfaces: names or prefixes (eth0,eth1), =eth0 for exactly this name, or ^ and those to leave out " +
			"(^docker,lo). Where it is not set, the Python package takes NCCL_SOCKET_IFNAME, or else GLOO_SOCKET_IFNAME; " +
			"if one of these leaves no interface, ranks of one host still do without TCP. The first group of a process that may use TCP decides.", false,
		func(o *Options) string { return o.SocketIfname },
		func(o *Options, v string) error { o.SocketIfname = v; return nil }},
	{"GOCCL_SOCKET_STREAMS", "", "int",
		"How many TCP sockets carry the data of two processes, 1 to 16: for networks that limit each " +
			"connection (clouds), or to use several interfaces of different rates. Not set: one for each interface that is " +
			"about as fast as the best one. The first group of a process that may use TCP decides.", false,
		func(o *Options) string { return countText(o.Streams) }, setStreams},
	{"GOCCL_SPIN_US", "", "int | str",
		"How many microseconds a wait of this process spins and yields before it sleeps; 0 sleeps at once. " +
			"Not set: learned from how long waits take and from who else needs the cores. The first group of a process decides.", false,
		func(o *Options) string { return o.Spin }, func(o *Options, v string) error { o.Spin = v; return nil }},
	{"GOCCL_TIMEOUT", "", "timedelta | float | str",
		"Timeout of operations and of joining a group, in seconds or with a unit (90, 1.5s, 5m); the process " +
			"group's own if not set. That of an operation counts from its turn, so a queue that moves never times out.", false,
		func(o *Options) string { return timeText(o.Timeout) },
		func(o *Options, v string) (err error) { o.Timeout, err = parseTime(v); return err }},
	{"GOCCL_TLS", "0", "bool",
		"1: TCP connections are encrypted by TLS 1.3, with a certificate that each process makes for itself and its " +
			"peers know from the store (docs/trust.md).", true,
		func(o *Options) string { return map[bool]string{true: "1"}[o.TLS] },
		func(o *Options, v string) (err error) { o.TLS, err = onOff(v); return err }},
	{"GOCCL_TOP", "1", "bool",
		"0: `goccl top` cannot ask this process what its groups are doing (docs/flight.md). The first group of a process " +
			"decides.", false,
		func(o *Options) string { return map[bool]string{true: "0"}[o.NoTop] },
		func(o *Options, v string) error {
			on, err := onOff(cmp.Or(v, "1"))
			o.NoTop = !on && err == nil
			return err
		}},
	{"GOCCL_TRANSPORT", "auto", "str",
		"auto: shared memory on one host, between hosts RDMA where both have adapters for it (docs/rdma.md), else TCP; " +
			"shm, rdma or tcp: only that. rdma includes TCP, which takes over where an adapter fails. A process opens only what " +
			"its groups may use: with shm nothing listens on TCP and no network interface need be up, with tcp there is " +
			"no unix socket but that of GOCCL_TOP. With auto a host without an interface that is up does with shared memory.", true,
		func(o *Options) string { return o.Transport },
		func(o *Options, v string) error { o.Transport = strings.ToLower(v); return nil }},
	{"GOCCL_TUNE", "", "str",
		"File with a table of which algorithm was fastest where, as `goccl tune --measure` writes it; its " +
			"rows come before those of the library. GOCCL_ALGO wins over it.", false,
		func(o *Options) string { return o.Tune }, func(o *Options, v string) error { o.Tune = v; return nil }},
	{"GOCCL_VERIFY", "tested", "str",
		"tested: plans of your own, and all plans of groups of more than 64 ranks, are proven in the form that " +
			"runs, before their first use; other algorithms of the library run as its tests have proven them. What " +
			"is too large to be proven in a few seconds runs all the same, and a WARN names it. always: each " +
			"plan is proven before its first use, for the ranks and root at hand, however long that takes.", true,
		func(o *Options) string { return o.Verify },
		func(o *Options, v string) error { o.Verify = strings.ToLower(v); return nil }},
	{"GOCCL_WARN_AFTER", "10s", "timedelta | float | str",
		"After how long an operation that does not end is warned of, in seconds or with a unit: the line names the " +
			"ranks that are missing, and who waits for whom. Again after twice as long, and so on. 0: never.", false,
		func(o *Options) string {
			if o.WarnAfter < 0 {
				return "0"
			}
			return timeText(o.WarnAfter)
		}, setWarnAfter},
}

// DefaultDeterminism is the level of a group whose Options name none.
const DefaultDeterminism = 2

func (o *Options) determinism() int { return cmp.Or(o.Determinism, DefaultDeterminism) }

func setDeterminism(o *Options, v string) error {
	switch v {
	case "":
		o.Determinism = 0
	case "2", "3", "4":
		o.Determinism = int(v[0] - '0')
	default:
		return fmt.Errorf("%q is not 2, 3 or 4", v)
	}
	return nil
}

// Values of Options.Futures.
const (
	FuturesCallbacks = "callbacks"
	FuturesWait      = "wait"
)

func setFutures(o *Options, v string) error {
	switch v {
	case "", FuturesCallbacks:
		o.Futures = ""
	case FuturesWait:
		o.Futures = v
	default:
		return fmt.Errorf("%q is not %s or %s", v, FuturesCallbacks, FuturesWait)
	}
	return nil
}

// setFamily takes the names of NCCL_SOCKET_FAMILY too.
func setFamily(o *Options, v string) error {
	switch strings.ToLower(v) {
	case "":
		o.SocketFamily = ""
	case "ipv4", "af_inet":
		o.SocketFamily = "ipv4"
	case "ipv6", "af_inet6":
		o.SocketFamily = "ipv6"
	default:
		return fmt.Errorf("%q is not ipv4 or ipv6", v)
	}
	return nil
}

// ports returns the first and the last port of Port, 0 for any.
func (o *Options) ports() (first, last int, err error) {
	if o.Port == "" {
		return 0, 0, nil
	}
	from, to, isRange := strings.Cut(o.Port, "-")
	if first, err = strconv.Atoi(from); err == nil {
		last = first
		if isRange {
			last, err = strconv.Atoi(to)
		}
	}
	if err != nil || first < 1 || last < first || last > 1<<16-1 {
		return 0, 0, fmt.Errorf("%q is not a port or a range of ports; write 29600 or 29600-29700", o.Port)
	}
	return first, last, nil
}

// defaultWarnAfter is about the longest that ranks of a healthy job wait for each other.
const defaultWarnAfter = 10 * time.Second

func (o *Options) warnAfter() time.Duration { return max(cmp.Or(o.WarnAfter, defaultWarnAfter), 0) }

func setWarnAfter(o *Options, v string) (err error) {
	if v == "0" || v == "0s" {
		o.WarnAfter = -1
		return nil
	}
	o.WarnAfter, err = parseTime(v)
	return err
}

func onOff(v string) (bool, error) {
	switch v {
	case "", "0", "1":
		return v == "1", nil
	}
	return false, fmt.Errorf("%q is not 0 or 1", v)
}

// setCount sets a number within limits; "" is 0, the default.
func setCount(into *int, v string, least, most int) error {
	n, err := strconv.Atoi(cmp.Or(v, "0"))
	if err != nil || v != "" && (n < least || n > most) {
		return fmt.Errorf("%q is not a number from %d to %d", v, least, most)
	}
	*into = n
	return nil
}

func (o *Options) checkGID() error {
	const mostIndex = 255
	n, err := strconv.Atoi(o.IBGIDIndex)
	if o.IBGIDIndex != "" && (err != nil || n < rdma.AnyGID || n > mostIndex) {
		return fmt.Errorf("%q is not an index from 0 to %d, or -1", o.IBGIDIndex, mostIndex)
	}
	return nil
}

func countText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// mostRecorded keeps a ring below 64 MiB.
const mostRecorded = 1 << 20

func setRecorder(o *Options, v string) error {
	n, err := strconv.Atoi(cmp.Or(v, "0"))
	if err != nil || n < 0 || n > mostRecorded {
		return fmt.Errorf("%q is not a number from 0 to %d", v, mostRecorded)
	}
	o.Recorder = n
	return nil
}

var cudaRoutes = []string{group.RouteAuto, group.RouteStaged, group.RouteWindows, group.RouteHostWindows}

// cudaRoute returns the route that device groups are to take.
func (o *Options) cudaRoute() string { return cmp.Or(o.CudaRoute, group.RouteAuto) }

// interpret returns CudaInterpret as a device group has it.
func (o *Options) interpret() (group.Interpret, error) {
	for _, i := range []group.Interpret{group.InterpretAuto, group.InterpretNever, group.InterpretAlways} {
		if cmp.Or(o.CudaInterpret, group.InterpretNever.String()) == i.String() {
			return i, nil
		}
	}
	return 0, fault.New(fault.Invalid, "GOCCL_CUDA_INTERPRET=%s is not auto, 0 or 1", o.CudaInterpret)
}

// recordSignals are the values of Options.RecordSignal.
var recordSignals = []string{"USR2", "USR1", "none"}

func setRecordSignal(o *Options, v string) error {
	o.RecordSignal = strings.TrimPrefix(strings.ToUpper(v), "SIG")
	if o.RecordSignal == "NONE" {
		o.RecordSignal = "none"
	}
	if o.RecordSignal != "" && !slices.Contains(recordSignals, o.RecordSignal) {
		return fmt.Errorf("%q is not one of %v", v, recordSignals)
	}
	return nil
}

func setStreams(o *Options, v string) error {
	n, err := strconv.Atoi(cmp.Or(v, "0"))
	if err != nil || n < 0 || n > tcp.MostStreams {
		return fmt.Errorf("%q is not a number from 1 to %d", v, tcp.MostStreams)
	}
	o.Streams = n
	return nil
}

// BuffSize covers both slots of a window.
const (
	leastBuffSize = plan.WindowSlots * leastSlot
	mostBuffSize  = windowBudget
)

// setSize sets a number of bytes within limits; "" is 0, the default.
func setSize(into *int, v string, least, most int) error {
	if v == "" {
		*into = 0
		return nil
	}
	n, err := humanize.ParseSize(v)
	if err == nil {
		err = within(n, least, most)
	}
	if err == nil {
		*into = int(n)
	}
	return err
}

func within(bytes int64, least, most int) error {
	if bytes < int64(least) || bytes > int64(most) {
		return fmt.Errorf("%d bytes are not from %s to %s", bytes, sizeText(least), sizeText(most))
	}
	return nil
}

// Limits of CudaBuffSize and CudaGraphs, and their defaults.
const (
	mostCudaGraphs      = 4096
	defaultCudaGraphs   = 128
	leastCudaBuffSize   = group.LeastStaging
	mostCudaBuffSize    = 1 << 30
	defaultCudaBuffSize = 16 << 20
)

// staging returns CudaBuffSize, or its default.
func (o *Options) staging() int { return cmp.Or(o.CudaBuffSize, defaultCudaBuffSize) }

// graphs returns CudaGraphs as a number.
func (o *Options) graphs() int {
	if n, err := strconv.Atoi(o.CudaGraphs); err == nil {
		return n
	}
	return defaultCudaGraphs
}

func (o *Options) checkGraphs() error {
	n, err := strconv.Atoi(o.CudaGraphs)
	if o.CudaGraphs != "" && (err != nil || n < 0 || n > mostCudaGraphs) {
		return fmt.Errorf("%q is not a number from 0 to %d", o.CudaGraphs, mostCudaGraphs)
	}
	return nil
}

// slot returns the number of bytes of a window that one operation may use.
func (o *Options) slot() int {
	if o.BuffSize == 0 {
		return windowSlot
	}
	return o.BuffSize / plan.WindowSlots &^ (mem.Align - 1)
}

// sizeText formats a size as ParseSize reads it, or "" for 0.
func sizeText(bytes int) string {
	if bytes == 0 {
		return ""
	}
	return humanize.FormatSize(int64(bytes))
}

// planFiles returns the files that Plan names.
func (o *Options) planFiles() []string {
	var files []string
	for file := range strings.SplitSeq(o.Plan, ",") {
		if file = strings.TrimSpace(file); file != "" {
			files = append(files, file)
		}
	}
	return files
}

func timeText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func parseTime(v string) (time.Duration, error) {
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		if d, err = time.ParseDuration(v + "s"); err != nil {
			return 0, fmt.Errorf("%q is not a time; write 90, 1.5s or 5m", v)
		}
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not more than zero", v)
	}
	return d, nil
}

// debugLevels are the values of Options.Debug. Each level also prints the lines of those before it.
var debugLevels = []string{"WARN", "INFO", "TRACE"}

// transports are the values of Options.Transport.
var transports = []string{"auto", "shm", "rdma", "tcp"}

// EnsureDefaults gives every option that is not set its default.
func (o *Options) EnsureDefaults() {
	for _, row := range optionTable {
		if row.get(o) == "" && row.Default != "" {
			row.set(o, row.Default)
		}
	}
}

// Validate returns an error that names an option with an invalid value, or nil.
func (o *Options) Validate() error {
	if o.Transport != "" && !slices.Contains(transports, o.Transport) {
		return fault.New(fault.Invalid, "GOCCL_TRANSPORT=%s is not one of %v", o.Transport, transports)
	}
	if o.RecordSignal != "" && !slices.Contains(recordSignals, o.RecordSignal) {
		return fault.New(fault.Invalid, "GOCCL_RECORD_SIGNAL=%s is not one of %v", o.RecordSignal, recordSignals)
	}
	if times := []string{"tested", "always"}; o.Verify != "" && !slices.Contains(times, o.Verify) {
		return fault.New(fault.Invalid, "GOCCL_VERIFY=%s is not one of %v", o.Verify, times)
	}
	if _, err := o.spin(); err != nil {
		return err
	}
	if _, _, err := o.ports(); err != nil {
		return fault.New(fault.Invalid, "GOCCL_PORT: %v", err)
	}
	if o.PeerTimeout != 0 && o.PeerTimeout < tcp.LeastPeerTimeout {
		return fault.New(fault.Invalid, "GOCCL_PEER_TIMEOUT=%v is less than %v", o.PeerTimeout, tcp.LeastPeerTimeout)
	}
	if err := within(int64(o.BuffSize), leastBuffSize, mostBuffSize); o.BuffSize != 0 && err != nil {
		return fault.New(fault.Invalid, "GOCCL_BUFFSIZE: %v", err)
	}
	err := within(int64(o.CudaBuffSize), leastCudaBuffSize, mostCudaBuffSize)
	if o.CudaBuffSize != 0 && err != nil {
		return fault.New(fault.Invalid, "GOCCL_CUDA_BUFFSIZE: %v", err)
	}
	if err := o.checkGraphs(); err != nil {
		return fault.New(fault.Invalid, "GOCCL_CUDA_GRAPHS: %v", err)
	}
	if o.CudaRoute != "" && !slices.Contains(cudaRoutes, o.CudaRoute) {
		return fault.New(fault.Invalid, "GOCCL_CUDA_ROUTE=%s is not one of %v", o.CudaRoute, cudaRoutes)
	}
	if _, err := o.interpret(); err != nil {
		return err
	}
	if err := o.checkRegistered(); err != nil {
		return fault.New(fault.Invalid, "GOCCL_REGISTERED: %v", err)
	}
	if err := o.checkCudaRegistered(); err != nil {
		return fault.New(fault.Invalid, "GOCCL_CUDA_REGISTERED: %v", err)
	}
	if o.Debug != "" && !slices.Contains(debugLevels, o.Debug) {
		return fault.New(fault.Invalid, "GOCCL_DEBUG=%s is not one of %v", o.Debug, debugLevels)
	}
	if o.Timeout < 0 {
		return fault.New(fault.Invalid, "GOCCL_TIMEOUT=%v is negative", o.Timeout)
	}
	if o.Determinism != 0 && (o.Determinism < 2 || o.Determinism > 4) {
		return fault.New(fault.Invalid, "GOCCL_DETERMINISM=%d is not 2, 3 or 4", o.Determinism)
	}
	override, err := tune.ParseOverride(o.Algo)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "GOCCL_ALGO=%s", o.Algo)
	}
	for coll, name := range override {
		level := verify.Needed(o.determinism())
		if a, err := algo.Find(coll, name); err == nil && coll.Reduces() && a.Level < int(level) {
			return fault.New(fault.Invalid,
				"GOCCL_ALGO=%v=%s has determinism level %d, GOCCL_DETERMINISM=%d asks for level %d", coll, name,
				a.Level, o.determinism(), level)
		}
	}
	return nil
}

// spin returns Spin in the form of park.SetSpin.
func (o *Options) spin() (time.Duration, error) {
	if o.Spin == "" {
		return -1, nil
	}
	us, err := strconv.ParseUint(o.Spin, 10, 32)
	if d := time.Duration(us) * time.Microsecond; err == nil && d <= park.MaxSpin {
		return d, nil
	}
	return 0, fault.New(fault.Invalid, "GOCCL_SPIN_US=%s: want whole microseconds, from 0 to %d",
		o.Spin, park.MaxSpin.Microseconds())
}

// allows reports whether a transport may be used.
func (o *Options) allows(transport string) bool {
	switch o.Transport {
	case "auto", transport:
		return true
	case "shm":
		return transport == "inproc" // ranks of one process share memory anyway
	}
	return false
}

// String returns the text form: one NAME=value per line, in the order of names, without options
// that are not set.
func (o Options) String() string {
	var b strings.Builder
	for _, row := range optionTable {
		if v := row.get(&o); v != "" {
			fmt.Fprintf(&b, "%s=%s\n", row.Name, v)
		}
	}
	return b.String()
}

// agreed returns, as text, the options that must be the same on all ranks.
func (o *Options) agreed() string {
	var b strings.Builder
	for _, row := range optionTable {
		if row.Agreed {
			fmt.Fprintf(&b, "%s=%s ", row.Name, row.get(o))
		}
	}
	return strings.TrimSpace(b.String())
}

// leastSecret is the length of the shortest secret, in bytes.
const leastSecret = 16

// secret reads the file of GOCCL_SECRET_FILE. White space around the secret does not count.
func (o *Options) secret() ([]byte, error) {
	if o.SecretFile == "" {
		return nil, nil
	}
	file, err := os.Open(o.SecretFile)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "GOCCL_SECRET_FILE")
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0) {
		return nil, fault.New(fault.Invalid, "GOCCL_SECRET_FILE=%s has mode %v: others than its owner can use it; chmod 600",
			o.SecretFile, info.Mode())
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(file, 1<<20))
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "GOCCL_SECRET_FILE")
	}
	if text = bytes.TrimSpace(text); len(text) < leastSecret {
		return nil, fault.New(fault.Invalid, "GOCCL_SECRET_FILE=%s has %d bytes, a secret has at least %d",
			o.SecretFile, len(text), leastSecret)
	}
	return text, nil
}

// ParseOptions parses the text form. Later lines win. The error for an unknown name or value lists
// the known ones.
func ParseOptions(text string) (Options, error) {
	var o Options
	for _, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if isServiceLink(name, value) {
			o.serviceLinks = append(o.serviceLinks, name)
			continue
		}
		row := findOption(name)
		if !ok || row == nil {
			return o, fault.New(fault.Invalid, "unknown option %s%s", name, suggest(name))
		}
		if err := row.set(&o, value); err != nil {
			return o, fault.New(fault.Invalid, "%s: %v", name, err)
		}
	}
	return o, o.Validate()
}

// serviceLink matches variables by which Kubernetes tells all containers of a namespace of a
// Service named goccl or goccl-x (GOCCL_SERVICE_HOST, GOCCL_X_PORT_80_TCP_ADDR, …), with their
// values.
var serviceLink = regexp.MustCompile(`^GOCCL_(?:[A-Z0-9_]+_)?(?:` +
	`SERVICE_HOST=[0-9A-Fa-f.:]+|` +
	`SERVICE_PORT(?:_[A-Z0-9_]+)?=[0-9]+|` +
	`PORT(?:_[0-9]+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://.*|` +
	`PORT_[0-9]+_(?:TCP|UDP|SCTP)_(?:PROTO=(?:tcp|udp|sctp)|PORT=[0-9]+|ADDR=[0-9A-Fa-f.:]+))$`)

// isServiceLink reports whether a variable is none of goccl's, but one that Kubernetes has set.
// GOCCL_PORT may be either.
func isServiceLink(name, value string) bool {
	return (findOption(name) == nil || name == "GOCCL_PORT") && serviceLink.MatchString(name+"="+value)
}

// warnOfServiceLinks says which variables were left out.
func (o *Options) warnOfServiceLinks() {
	if n := len(o.serviceLinks); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" and %d more", n-1)
		}
		o.printer("WARN")("%s%s: left alone; Kubernetes sets such variables for a Service whose name begins with goccl; "+
			"enableServiceLinks: false in the spec of the pod leaves them out", o.serviceLinks[0], more)
	}
}

func findOption(name string) *option {
	for i := range optionTable {
		if optionTable[i].Name == name {
			return &optionTable[i]
		}
	}
	return nil
}

// suggest names the nearest option, or all of them.
func suggest(name string) string {
	var names []string
	for _, row := range optionTable {
		names = append(names, row.Name)
	}
	if nearest := humanize.DidYouMean(strings.ToUpper(name), names); nearest != "" {
		return nearest
	}
	return "; known: " + strings.Join(names, ", ")
}

// OptionHelp returns the table of all options for users: name, default and meaning, in Markdown.
func OptionHelp() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, row := range optionTable {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.Name, row.Default, row.Doc)
	}
	return b.String()
}

// override returns Algo by collective. Validate has checked that it can be parsed.
func (o *Options) override() map[dtype.Collective]string {
	m, _ := tune.ParseOverride(o.Algo)
	return m
}
