package ccl

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/cuda/group"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/internal/logs"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/tcp"
)

// NodeOptions are the choices of a user for a whole process. The zero value means the defaults.
//
// A Node has those that it was made with. A layer that makes its Node for its first group gives
// those of every group (Config.Node): the first group that uses a part of the Node decides, and a
// later one that asks for something else gets a warning.
type NodeOptions struct {
	Registered   int           // bytes of room for registered memory; 0 means 16 GiB, negative none
	Spin         time.Duration // how long a wait stays awake, in whole µs; 0 to learn it, negative for not at all
	Logger       *slog.Logger  // takes the lines for users; nil for DebugFile
	DebugFile    string        // the file that they go to, with %h for the host, %p for the process; "" for stderr
	DebugFormat  string        // of these lines: "text" or "json"
	NoTop        bool          // goccl top is told nothing of this Node
	RecordSignal string        // "USR2", "USR1", "none": when the last operations are written to a file

	// The first group that may use TCP decides.

	SocketIfname     string        // interfaces: "eth0,eth1", "^docker,lo", prefixes; "" for all reachable ones
	SocketFamily     string        // "ipv4", "ipv6" or "" for both
	SocketCongestion string        // of TCP connections: "cubic", "system"; "" for the system's where it suits
	Streams          int           // sockets between two processes; 0: one for each wire as fast as the best
	Port             string        // "29600", "29600-29700" or "" for any
	PeerTimeout      time.Duration // how long a path may be broken or silent; 0 for 10 s
	Checksum         bool          // fragments carry checksums
	SecretFile       string        // a file whose contents all processes must have; "" for none

	// The first group that may use RDMA decides.

	IBHCA      string // adapters: "mlx5", "=mlx5_0:1,mlx5_1", "^mlx5_3"; "" for all
	IBGIDIndex *int   // index of the GID of all ports; nil to choose
	IBTimeout  int    // a write is tried again after 4.096 µs × 2^this; 0 for 16
	IBRetryCnt int    // how often; 0 for 5
	IBTC       int    // traffic class of packets
	IBSL       int    // service level of packets

	// The first group on a device decides.

	CudaRegistered int // bytes of registered memory of each device; 0 or negative for none

	serviceLinks []string // names that ParseOptions has left out, since Kubernetes has set them
}

// GroupOptions are the choices of a user for one group. The zero value means the defaults.
type GroupOptions struct {
	// All ranks must have the same.

	Transport     string // "auto" (shared memory on one host, RDMA or TCP between hosts), "shm", "rdma", "tcp"
	TLS           bool   // TCP connections are encrypted; all groups of a Node need the same
	Algo          string // "all_reduce=ring,broadcast=binomial"; "" for the library's choice
	Determinism   int    // 1 to 4; see docs/determinism.md. 0 means DefaultDeterminism
	FastBF16      bool   // sums of BF16 by AVX512_BF16, where all ranks have it
	Verify        string // "tested", "always": when plans of the catalogue are proven
	BuffSize      int    // bytes of windows that a rank may have in a group; 0 means 2 MiB
	CudaBuffSize  int    // bytes of host memory by which a device group moves collectives; 0 means 16 MiB
	CudaGraphs    int    // how many CUDA graphs can have calls of a device group; 0 means 128, negative none
	CudaInterpret string // whether short calls on devices are one kernel: "auto", "0", "1"; "" means "0"
	CudaRoute     string // of device groups: "auto", "staged", "windows", "host-windows"; "" means "auto"
	Futures       string // the Python package: FuturesCallbacks or FuturesWait, what get_future gives

	// Each rank has its own.

	Timeout      time.Duration // of operations and of joining; 0 for the caller's
	WarnAfter    time.Duration // when to warn of an operation that does not end; 0 for 10 s, negative for never
	Debug        string        // "WARN", "INFO", "TRACE"
	Plan         string        // files with plans of the user's own, separated by commas; the same plans on all ranks
	Costs        string        // file of what calls cost (`goccl tune fit`); "" for what is kept, "off" for none
	Site         string        // the place of the host: hosts of other sites are far away; "" for none
	Topo         string        // file of a machine or a network, or a text that names one; "off" to measure nothing
	Tune         string        // "online", "online,FILE", or FILE: a table, as `goccl tune measure` writes it; likewise
	TuneOutput   string        // file in which rank 0 keeps what has won online, as a table; "" for nowhere
	Recorder     int           // how many of the last operations of a group are remembered; 0 for none
	RecordFile   string        // where a failure or a signal leaves them, without the rank; "" for nowhere
	BlockingWait bool          // the Python package: wait of an operation on a device waits for the device
}

// Options are all choices of a user. The text form has one NAME=value per line, with the names of
// the environment variables. String and ParseOptions are inverses of each other.
type Options struct {
	NodeOptions
	GroupOptions
}

// DefaultDeterminism is the level of a group whose options name none.
const DefaultDeterminism = 2

// Values of GroupOptions.Futures.
const (
	FuturesCallbacks = "callbacks"
	FuturesWait      = "wait"
)

// Limits of options.
const (
	leastBuffSize  = plan.WindowSlots * leastSlot // both slots of a window
	mostBuffSize   = windowBudget
	mostCudaGraphs = 4096
	mostRecorded   = 1 << 20 // keeps a ring below 64 MiB
	mostGID        = 255

	registeredUnit = 2 << 20 // registered memory is a multiple of it, so that huge pages fit
	mostRegistered = 1 << 40
	registeredForm = "0, or a size from 2M to 1T"
)

// scope says whom an option is for, and so who decides.
type scope int

const (
	perRank    scope = iota // a group; each rank has its own
	agreed                  // a group; all its ranks must have the same
	perProcess              // the process, from its first group on
	withTCP                 // the process, from its first group on that may use TCP
	withRDMA                // the process, from its first group on that may use RDMA
	perDevice               // a device of the process, from its first group on
	perSignal               // the process, from its first group on that leaves a record on a signal
)

// deciders say, for users, who decides in the scopes of a process.
var deciders = map[scope]string{
	perProcess: "the first group of a process decides",
	withTCP:    "the first group of a process that may use TCP decides",
	withRDMA:   "the first group of a process that may use RDMA decides",
	perDevice:  "the first group of a process on a device decides",
	perSignal:  "the first group of a process whose operations are recorded decides",
}

// option is one row of the table that defines everything about options: parsing, printing, checks,
// documentation and goccl.Options of Python.
type option struct {
	Name    string // of the environment variable
	Scope   scope
	Default string
	Python  string // the type in Python
	Doc     string

	get   func(*Options) string        // "" for what is not set
	set   func(*Options, string) error // "" for not set
	check func(*Options) error         // of what a caller has set
	copy  func(to *Options, from *Options)
}

// row makes a row of the table. The kind says how a field of the options is written and checked.
func row[T comparable](name string, s scope, byDefault string, k kind[T], field func(*Options) *T, doc string) *option {
	var unset T
	if who := deciders[s]; who != "" {
		doc += " " + strings.ToUpper(who[:1]) + who[1:] + "."
	}
	return &option{Name: name, Scope: s, Default: byDefault, Python: k.python, Doc: doc,
		get: func(o *Options) string {
			if v := *field(o); v != unset {
				return k.print(v)
			}
			return ""
		},
		set: func(o *Options, text string) error {
			v, err := unset, error(nil)
			if text != "" {
				v, err = k.read(text)
			}
			if err == nil {
				*field(o) = v
			}
			return err
		},
		check: func(o *Options) error {
			if v := *field(o); v != unset {
				return k.check(v)
			}
			return nil
		},
		copy: func(to, from *Options) { *field(to) = *field(from) },
	}
}

//go:generate go test -count=1 -run ^TestOptionsOfPython$ . -rewrite

var optionTable = []*option{
	row("GOCCL_ALGO", agreed, "", text(checkAlgo),
		func(o *Options) *string { return &o.Algo },
		"Algorithm for a collective, as all_reduce=ring,broadcast=binomial; `goccl plan list` shows them."),
	row("GOCCL_BLOCKING_WAIT", perRank, "0", onOff(true),
		func(o *Options) *bool { return &o.BlockingWait },
		"1: wait() of an operation on CUDA tensors returns when the device has ended it, and raises its error. 0: "+
			"it makes the current stream wait, and returns at once."),
	row("GOCCL_BUFFSIZE", agreed, "2M", size(leastBuffSize, mostBuffSize),
		func(o *Options) *int { return &o.BuffSize },
		"Most bytes of windows that a rank has in a group, such as 512K or 8M, from 128K to 32M: half of it is what "+
			"one operation uses at a time, longer ones run in pieces. All groups of a process share 32M; a group "+
			"of n ranks may use at most 1/n of what remains."),
	row("GOCCL_CHECKSUM", withTCP, "0", onOff(true),
		func(o *Options) *bool { return &o.Checksum },
		"1: everything that this process sends by TCP carries CRC-32C checksums. What arrives damaged is sent "+
			"again; a path that does it three times within a minute is named and given up."),
	row("GOCCL_COSTS", perRank, "", text(nil),
		func(o *Options) *string { return &o.Costs },
		"File of what calls cost, as `goccl tune fit` writes it for a network; off: none. Not set: what `goccl tune "+
			"fit --launched` has kept for this user and host, if it has. Between hosts, algorithms are then chosen by "+
			"what is predicted for them, where GOCCL_ALGO and tables say nothing. All ranks of a group need costs, or "+
			"none are used; of different ones each is the highest."),
	row("GOCCL_CUDA_BUFFSIZE", agreed, "16M", size(group.LeastStaging, 1<<30),
		func(o *Options) *int { return &o.CudaBuffSize },
		"Bytes of host memory through which a group moves the collectives of CUDA tensors, such as 4M or 64M, from "+
			"256K to 1G; a quarter of it is what one piece of a call uses at most. Messages have as many again."),
	row("GOCCL_CUDA_GRAPHS", agreed, "128",
		zeroIsNone(number(1, mostCudaGraphs), fmt.Sprintf("a number from 0 to %d", mostCudaGraphs)),
		func(o *Options) *int { return &o.CudaGraphs },
		"How many CUDA graphs can have collectives of a group over windows at the same time. Each has a quarter of "+
			"GOCCL_CUDA_BUFFSIZE for itself until it is destroyed; there is memory for 8, and for 8 more when they "+
			"are captured. 0: none."),
	row("GOCCL_CUDA_INTERPRET", agreed, route.InterpretNever.String(), word(asIs, interprets...),
		func(o *Options) *string { return &o.CudaInterpret },
		"Whether a call over windows in the memory of devices, of up to 64 KiB, is one kernel, which waits for the "+
			"kernels of the peers. 0: never. auto: if each rank has a device of its own; two devices have not run "+
			"it yet. 1: always; ranks of several processes that share a device then wait for their turn on it."),
	row("GOCCL_CUDA_REGISTERED", perDevice, "0", zeroIsNone(size(registeredUnit, mostRegistered), registeredForm),
		func(o *Options) *int { return &o.CudaRegistered },
		"Registered memory of each CUDA device that this process uses (goccl.empty with device=\"cuda\", "+
			"goccl.mem_pool), such as 512M or 8G: it is taken when the first group on the device is made. 0: none. "+
			"See docs/registered.md."),
	row("GOCCL_CUDA_ROUTE", agreed, route.Auto,
		word(asIs, route.Auto, route.Staged, route.Windows, route.HostWindows),
		func(o *Options) *string { return &o.CudaRoute },
		"Route of the collectives of CUDA tensors: windows, host-windows, staged (docs/cuda.md describes them), or "+
			"auto, the best of these that works."),
	row("GOCCL_DEBUG", perRank, "WARN", word(strings.ToUpper, "WARN", "INFO", "TRACE"),
		func(o *Options) *string { return &o.Debug },
		"What is written to standard error, or to GOCCL_DEBUG_FILE. WARN: what is probably a mistake. INFO: also how ranks are joined, and "+
			"which plan runs for which collective and sizes. TRACE: also the plan of each call that has another "+
			"size than the one before."),
	row("GOCCL_DEBUG_FILE", perProcess, "", text(checkDebugFile),
		func(o *Options) *string { return &o.DebugFile },
		"File that these lines are added to, in place of standard error; %h in the name is the host, %p the process, "+
			"%% a %."),
	row("GOCCL_DEBUG_FORMAT", perProcess, logs.Text, word(asIs, logs.Text, logs.JSON),
		func(o *Options) *string { return &o.DebugFormat },
		"Form of these lines. text: time, host, process, level, rank, group, message (docs/launch.md has an "+
			"expression that takes them apart). json: an object a line, with the same."),
	row("GOCCL_DETERMINISM", agreed, strconv.Itoa(DefaultDeterminism), number(1, 4),
		func(o *Options) *int { return &o.Determinism },
		"1: the same bits on every rank; GOCCL_TUNE=online may then give a sum other bits than another run has. 2: "+
			"also the same in every run. 3: also independent of message size and bucket split. 4: "+
			"also of the algorithm."),
	row("GOCCL_FAST_BF16", agreed, "0", onOff(true),
		func(o *Options) *bool { return &o.FastBF16 },
		"1: where the CPUs of all ranks have AVX512_BF16, sums of bf16 use its conversions, which make subnormal "+
			"results zero; see docs/dtypes.md for what that gains."),
	row("GOCCL_FUTURES", agreed, FuturesCallbacks, word(asIs, FuturesCallbacks, FuturesWait),
		func(o *Options) *string { return &o.Futures },
		"What get_future() of an operation on CPU tensors gives. callbacks: a future that completes when the "+
			"operation ends; the ranks match collectives in its callbacks by the callback. wait: it waits for the "+
			"operation, and gives a complete future, whose callbacks run where they are given, so that their "+
			"collectives have an order (docs/torch.md)."),
	row("GOCCL_IB_GID_INDEX", withRDMA, "-1", index(mostGID),
		func(o *Options) **int { return &o.IBGIDIndex },
		"Index of the GID that RDMA uses in the tables of all ports. -1: on RoCE the one that reaches furthest "+
			"(RoCE v2 with an IPv4 address, then with an IPv6 address, then RoCE v1), on InfiniBand the first. "+
			"Where it is not set, NCCL_IB_GID_INDEX counts."),
	row("GOCCL_IB_HCA", withRDMA, "", text(checkAdapters),
		func(o *Options) *string { return &o.IBHCA },
		"Adapters that RDMA may use, and their ports: names or prefixes (mlx5), = for exactly these names "+
			"(=mlx5_0:1,mlx5_1), or ^ and those to leave out (^mlx5_3); a process uses 4 ports, near ones and fast "+
			"ones first. Where it is not set, NCCL_IB_HCA counts."),
	row("GOCCL_IB_RETRY_CNT", withRDMA, strconv.Itoa(rdma.DefaultRetries), number(1, rdma.MostRetries),
		func(o *Options) *int { return &o.IBRetryCnt },
		"How often RDMA sends something again that is not acknowledged, 1 to 6, before the path counts as broken."),
	row("GOCCL_IB_SL", withRDMA, "0", number(0, rdma.MostService),
		func(o *Options) *int { return &o.IBSL },
		"Service level of what RDMA sends on InfiniBand, or priority on RoCE, 0 to 15."),
	row("GOCCL_IB_TC", withRDMA, "0", number(0, rdma.MostClass),
		func(o *Options) *int { return &o.IBTC },
		"Traffic class of what RDMA sends, 0 to 255."),
	row("GOCCL_IB_TIMEOUT", withRDMA, strconv.Itoa(rdma.DefaultTimeout),
		number(rdma.LeastTimeout, rdma.MostTimeout),
		func(o *Options) *int { return &o.IBTimeout },
		"After how long RDMA sends something again that is not acknowledged: 4.096 µs × 2^this, 14 (67 ms) to 22 "+
			"(17 s)."),
	row("GOCCL_PEER_TIMEOUT", withTCP, "10s", duration(tcp.LeastPeerTimeout),
		func(o *Options) *time.Duration { return &o.PeerTimeout },
		"How long the path to a process on another host may be broken or silent, in seconds or with a unit, 2s at "+
			"least; then the process counts as lost. Until then a connection that breaks is made again."),
	row("GOCCL_PLAN", perRank, "", text(nil),
		func(o *Options) *string { return &o.Plan },
		"Files with plans of your own, separated by commas; each is verified, and used for the collective, ranks "+
			"and sizes that it declares."),
	row("GOCCL_PORT", withTCP, "", ports(),
		func(o *Options) *string { return &o.Port },
		"Port that a process listens on for TCP, or a range of ports of which the first free one is taken "+
			"(29600-29700): a host needs as many as it has ranks. Not set: any port."),
	row("GOCCL_RECORDER", perRank, "0", number(0, mostRecorded),
		func(o *Options) *int { return &o.Recorder },
		"How many of a group's last operations are remembered, for the file that is written when one fails "+
			"(docs/flight.md); 0: none, or 4096 with GOCCL_RECORD_FILE. The Python package asks for 4096."),
	row("GOCCL_RECORD_FILE", perRank, "", text(nil),
		func(o *Options) *string { return &o.RecordFile },
		"File to which a process writes the last operations of its groups when one fails, and on a signal; the "+
			"number of its rank is added to the name (docs/flight.md). Not set: in Python where torch's recorder "+
			"would write, in Go none is written."),
	row("GOCCL_RECORD_SIGNAL", perSignal, "USR2", word(signalName, "USR2", "USR1", "none"),
		func(o *Options) *string { return &o.RecordSignal },
		"Signal at which a process writes that file, also while it computes or waits (docs/flight.md): USR2, USR1, "+
			"or none. A program in Python or C that handles the signal itself, or ignores it, keeps it."),
	row("GOCCL_REGISTERED", perProcess, "16G", zeroIsNone(size(registeredUnit, mostRegistered), registeredForm),
		func(o *Options) *int { return &o.Registered },
		"Room for registered memory of a process (goccl.empty), such as 512M or 64G: addresses only, memory is "+
			"taken as it is used. 0: none, as where it is more than an eighth of what ulimit -v leaves. See "+
			"docs/registered.md."),
	row("GOCCL_SECRET_FILE", withTCP, "", text(nil),
		func(o *Options) *string { return &o.SecretFile },
		"File with a secret that all processes of a job must have to connect by TCP, 16 bytes at least, which only "+
			"its owner can read: the store alone is then not enough to join (docs/trust.md). A group that asks for "+
			"another file than its process has is refused."),
	row("GOCCL_SITE", perRank, "", text(checkSite),
		func(o *Options) *string { return &o.Site },
		"Name of the place where this host is, such as a region or a building: hosts of other sites are far away, by "+
			"a millisecond and more. Collectives then cross what is between sites in as few steps as they can "+
			"(docs/topology.md). All ranks of a host need the same; hosts without a site are at one together."),
	row("GOCCL_SOCKET_CONGESTION", withTCP, "", text(checkCongestion),
		func(o *Options) *string { return &o.SocketCongestion },
		"Congestion control of TCP connections, of those that Linux has, such as cubic, reno or bbr; system: the "+
			"system's. Not set: the system's, but where that is BBR and a round trip takes less than 1 ms, cubic, or "+
			"reno where users may not have cubic (net.ipv4.tcp_allowed_congestion_control): BBR makes collectives up "+
			"to 5 times slower there."),
	row("GOCCL_SOCKET_FAMILY", withTCP, "", word(familyName, "ipv4", "ipv6"),
		func(o *Options) *string { return &o.SocketFamily },
		"ipv4 or ipv6: TCP uses only addresses of this family (AF_INET and AF_INET6 mean the same)."),
	row("GOCCL_SOCKET_IFNAME", withTCP, "", text(nil),
		func(o *Options) *string { return &o.SocketIfname },
		"Network interfaces: names or prefixes (eth0,eth1), =eth0 for exactly this name, or ^ and those to leave "+
			"out (^docker,lo). Where it is not set, NCCL_SOCKET_IFNAME counts, or else "+
			"GLOO_SOCKET_IFNAME; if one of these leaves no interface, ranks of one host still do without TCP. Not set: "+
			"all, bridges of containers (docker, virbr, br- …) after all others. IPv6's link-local addresses (fe80::) do "+
			"not count; of more than 32 addresses, one of each subnet comes first, and a WARN names what is left out."),
	row("GOCCL_SOCKET_STREAMS", withTCP, "", number(0, tcp.MostStreams),
		func(o *Options) *int { return &o.Streams },
		"How many TCP sockets carry the data of two processes, 1 to 16: for networks that limit each connection "+
			"(clouds), or to use several interfaces of different rates. 0, or not set: one for each interface that "+
			"is about as fast as the best one."),
	row("GOCCL_SPIN_US", perProcess, "",
		zeroIsNone(micros(park.MaxSpin), fmt.Sprintf("whole microseconds, from 0 to %d", park.MaxSpin.Microseconds())),
		func(o *Options) *time.Duration { return &o.Spin },
		"How many microseconds a wait of this process spins and yields before it sleeps; 0 sleeps at once. Not set: "+
			"learned from how long waits take and from who else needs the cores."),
	row("GOCCL_TIMEOUT", perRank, "", duration(0),
		func(o *Options) *time.Duration { return &o.Timeout },
		"Timeout of operations and of joining a group, in seconds or with a unit (90, 1.5s, 5m); the process "+
			"group's own if not set. That of an operation counts from its turn, so a queue that moves never times "+
			"out."),
	row("GOCCL_TLS", agreed, "0", onOff(true),
		func(o *Options) *bool { return &o.TLS },
		"1: TCP connections are encrypted by TLS 1.3, with a certificate that each process makes for itself and its "+
			"peers know from the store (docs/trust.md). All groups of a process that may use TCP need the same."),
	row("GOCCL_TOP", perProcess, "1", onOff(false),
		func(o *Options) *bool { return &o.NoTop },
		"0: `goccl top` cannot ask this process what its groups are doing (docs/flight.md)."),
	row("GOCCL_TOPO", perRank, "", text(nil),
		func(o *Options) *string { return &o.Topo },
		"File that describes a machine or the network between hosts in place of what is found (`goccl topo` writes "+
			"one, and reads NCCL's and hwloc's), or a text such as fattree:64,alpha=1us,bw=25GB; see "+
			"docs/topology.md. What it says of the network comes before costs that are kept, and behind "+
			"GOCCL_COSTS. off: nothing is measured when ranks join."),
	row("GOCCL_TRANSPORT", agreed, "auto", word(strings.ToLower, "auto", "shm", "rdma", "tcp"),
		func(o *Options) *string { return &o.Transport },
		"auto: shared memory on one host, between hosts RDMA where both have adapters for it (docs/rdma.md), else "+
			"TCP; shm, rdma or tcp: only that. rdma includes TCP, which takes over where an adapter fails. A "+
			"process opens only what its groups may use: with shm nothing listens on TCP and no network interface "+
			"need be up, with tcp there is no unix socket but that of GOCCL_TOP. With auto, a host with no "+
			"active network interface uses shared memory only."),
	row("GOCCL_TUNE", perRank, "", text(checkTune),
		func(o *Options) *string { return &o.Tune },
		"File with a table of which algorithm was fastest where, as `goccl tune measure` writes it; its rows come "+
			"before those of the library. GOCCL_ALGO wins over it. online: the first calls of a size try the two or "+
			"three algorithms that are nearest, and keep the fastest (docs/predict.md); online,FILE: but for calls that "+
			"a row of FILE is for. A file with that name is ./online."),
	row("GOCCL_TUNE_OUTPUT", perRank, "", text(nil),
		func(o *Options) *string { return &o.TuneOutput },
		"File in which rank 0 keeps, as rows of a table, what has won with GOCCL_TUNE=online."),
	row("GOCCL_VERIFY", agreed, "tested", word(strings.ToLower, "tested", "always"),
		func(o *Options) *string { return &o.Verify },
		"tested: plans of your own, and all plans of groups of more than 64 ranks, are proven in the form that "+
			"runs, before their first use; other algorithms of the library run as its tests have proven them. What "+
			"is too large to be proven in a few seconds runs all the same, and a WARN names it. always: each plan "+
			"is proven before its first use, for the ranks and root at hand, however long that takes."),
	row("GOCCL_WARN_AFTER", perRank, "10s", zeroIsNone(duration(0), "0, or "+timeForm),
		func(o *Options) *time.Duration { return &o.WarnAfter },
		"After how long an operation that does not end is warned of, in seconds or with a unit: the line names the "+
			"ranks that are missing, and who waits for whom. Again after twice as long, and so on. 0: never."),
}

// interprets are the values of GroupOptions.CudaInterpret.
var interprets = []string{route.InterpretAuto.String(), route.InterpretNever.String(), route.InterpretAlways.String()}

// What follows is for options that have been settled.

// interpret returns CudaInterpret as a device group has it.
func (o *GroupOptions) interpret() route.Interpret {
	return route.Interpret(slices.Index(interprets, o.CudaInterpret))
}

// slot returns the number of bytes of a window that one operation may use.
func (o *GroupOptions) slot() int { return o.BuffSize / plan.WindowSlots &^ (mem.Align - 1) }

// allows reports whether a transport may be used.
func (o *GroupOptions) allows(transport string) bool {
	switch o.Transport {
	case "auto", transport:
		return true
	case "shm":
		return transport == "inproc" // ranks of one process share memory anyway
	}
	return false
}

// override returns Algo by collective.
func (o *GroupOptions) override() map[dtype.Collective]string {
	m, _ := tune.ParseOverride(o.Algo)
	return m
}

// planFiles returns the files that Plan names.
func (o *GroupOptions) planFiles() []string {
	var files []string
	for file := range strings.SplitSeq(o.Plan, ",") {
		if file = strings.TrimSpace(file); file != "" {
			files = append(files, file)
		}
	}
	return files
}
