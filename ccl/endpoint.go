package ccl

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/internal/record"
	"github.com/goccl/goccl/transport"
)

// MaxAddress bounds Endpoint.Address, in bytes.
const MaxAddress = 16 << 10

// MaxRanks bounds a group.
const MaxRanks = 1 << 16

// A window has plan.WindowSlots slots, of which an operation uses one at a time: a slot should stay
// in the cache (GOCCL_BUFFSIZE). The windows of all groups together have at most windowBudget; as
// less of it is left, slots become smaller. After the first group windowReserve of the budget is
// kept for groups with small slots, so that the sixtieth group has windows, too. When nothing is
// left, a group has windows only if its options ask for them.
const (
	windowSlot   = 1 << 20 // the default
	smallSlot    = 128 << 10
	leastSlot    = 64 << 10
	windowBudget = 32 << 20

	windowReserve = 16 << 20
)

// Config identifies the rank and the group of an Endpoint.
type Config struct {
	Name    string // of the group, for messages
	Rank    int
	Size    int
	Timeout time.Duration // of operations that have none of their own; Options.Timeout wins; 0 for none
	Options GroupOptions
	Client  string // version of the layer above (the torch shim); must be the same on all ranks
	Device  bool   // the Communicator is for OnDevice, and nothing else; must be the same on all ranks
	Bus     string // where the device is on the PCI bus, "0000:65:00.0"; "" without one

	// Node, if set, has options for parts of the Node that no group has used yet (NodeOptions says
	// which), in place of those that the Node was made with.
	Node *NodeOptions

	// Share has descriptors, at most transport.MaxShare, that the ranks of this host get copies of
	// (Communicator.Shared), and Note what they have to know of them, in at most transport.MaxNote
	// bytes. Either all ranks of a group give descriptors or a note, or none does. The descriptors
	// stay the caller's, and must be open until Join has returned.
	Share []int
	Note  []byte
}

func (c *Config) shares() bool { return len(c.Share)+len(c.Note) > 0 }

// Endpoint is a rank that has not joined its group yet.
type Endpoint struct {
	node    *Node
	cfg     Config
	address []byte
	plans   []ownPlan
	table   *tune.Table // the user's own, or nil
	fabrics []transport.Fabric
	lacking string // why there are no more of them
	costs   string // where what the network costs comes from
	apart   bool   // no process shares memory with others: it was refused to two of the group
}

// address holds the data that a rank sends to the others before they join. It is untrusted until
// checked.
type address struct {
	topo.Rank
	Version string            `json:"version"`
	Format  int               `json:"format"`
	Client  string            `json:"client"`
	Device  bool              `json:"device,omitempty"`
	Shares  bool              `json:"shares,omitempty"`
	Options string            `json:"options"`
	Plans   string            `json:"plans,omitempty"`
	Tune    string            `json:"tune,omitempty"`
	Nonce   string            `json:"nonce"`
	Fabrics map[string][]byte `json:"fabrics"`
}

// Open makes an Endpoint. Its Address must reach every other rank of the group before Join.
func (n *Node) Open(cfg Config) (*Endpoint, error) {
	if cfg.Size < 1 || cfg.Size > MaxRanks {
		return nil, fault.New(fault.Invalid, "group of %d ranks, want 1 to %d", cfg.Size, MaxRanks)
	}
	if cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fault.New(fault.Invalid, "rank %d of a group of %d: ranks are 0 to %d",
			cfg.Rank, cfg.Size, cfg.Size-1)
	}
	var err error
	if cfg.Options, err = cfg.Options.settled(); err != nil {
		return nil, err
	}
	if err := transport.CheckShare(cfg.Share, cfg.Note); err != nil {
		return nil, err
	}
	cfg.Share, cfg.Note = slices.Clone(cfg.Share), slices.Clone(cfg.Note)
	if cfg.Options.Timeout > 0 {
		cfg.Timeout = cfg.Options.Timeout
	}
	if cfg.Options.RecordFile != "" && cfg.Options.Recorder == 0 {
		cfg.Options.Recorder = enoughRecorded
	}
	plans, contents, err := loadPlans(&cfg.Options)
	if err != nil {
		return nil, err
	}
	table, rows, err := loadTable(&cfg.Options)
	if err != nil {
		return nil, err
	}
	around, err := look(&cfg.Options, cfg.Size)
	if err != nil {
		return nil, err
	}
	n.show()
	fabrics, lacking, err := n.fabricsFor(&cfg)
	if err != nil {
		return nil, err
	}
	var nonce [16]byte
	rand.Read(nonce[:])
	host, _ := os.Hostname()
	place, _ := probe.Place("/")
	a := address{Version: Version, Format: PlanFormat, Client: cfg.Client, Device: cfg.Device, Shares: cfg.shares(),
		Options: cfg.Options.agreed(), Plans: contents, Tune: rows, Nonce: hex.EncodeToString(nonce[:]),
		Fabrics: map[string][]byte{}, Rank: topo.Rank{Number: cfg.Rank, Size: cfg.Size, Host: host, Place: place,
			Process: n.id, Pid: os.Getpid(), Network: around.network, Far: around.far, Described: around.hosts,
			Rates: around.rates, Cores: park.Affinity().String(), Usable: park.Cores(),
			Slot: n.windowSlot(cfg.Size, cfg.Options.slot()), BF16: cfg.Options.FastBF16 && kernel.HasFastBF16(),
			Claims: kernel.Claims(), Site: cfg.Options.Site}}
	for _, f := range fabrics {
		a.Fabrics[f.Name()] = f.Address()
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "address")
	}
	if len(text) > MaxAddress {
		return nil, fault.New(fault.Internal, "address of %d bytes", len(text))
	}
	e := &Endpoint{node: n, cfg: cfg, address: text, plans: plans, table: table, fabrics: fabrics, lacking: lacking,
		costs: around.by}
	e.tellOtherPlans()
	if around.lacks != "" {
		e.log("INFO", "%s", around.lacks)
	}
	n.tellIgnored(cfg.Node, func(format string, args ...any) { e.log("WARN", format, args...) })
	return e, nil
}

// Address returns the data that the other ranks need to join this one.
func (e *Endpoint) Address() []byte { return e.address }

// Join connects this rank to all others. addresses[r] is the Address of rank r, including this
// rank's own. Join returns when every rank has joined or, if ctx ends first, with an error that
// names the ranks that did not.
func (e *Endpoint) Join(ctx context.Context, addresses [][]byte) (*Communicator, error) {
	c, err := e.join(ctx, addresses)
	if refused := e.refusal(err); refused != nil {
		c, err = e.unshared(refused).join(ctx, addresses)
	}
	if err != nil {
		return nil, e.named(err)
	}
	c.origin.endpoint = e
	if c, err = e.node.register(c); err == nil {
		c.record()
	}
	return c, err
}

// join is one attempt of Join.
func (e *Endpoint) join(ctx context.Context, addresses [][]byte) (*Communicator, error) {
	peers, group, err := e.agree(addresses)
	if err != nil {
		return nil, err
	}
	e.node.sit(&e.cfg, group)
	planner, channels := e.planner(group)
	j := e.routed(peers, planner.group)
	if err := j.link(ctx, addresses, channels); err != nil {
		e.leaveSecond(addresses, err)
		return nil, err
	}
	c, err := e.start(j, planner, channels)
	if err != nil {
		return nil, err
	}
	c.origin = &origin{addresses: addresses, fabrics: j.fabrics}
	return c, nil
}

// planner returns what chooses the plans of a group, and how many channels these need. What the
// windows of the group are like is settled here, since that depends on the plans.
func (e *Endpoint) planner(group *topo.Group) (p *planner, channels int) {
	p = newPlanner(&e.cfg.Options, e.plans, group)
	if e.cfg.Rank == 0 { // all ranks would print the same
		p.warn = func(format string, args ...any) { e.log("WARN", format, args...) }
	}
	p.wishes.Table, p.costs = e.table, e.costs
	channels, windows := p.needs()
	p.group = group.WithSlot(slotFor(group, windows))
	if _, trials := e.cfg.Options.Tuning(); trials && !e.cfg.Device {
		p.tryOnline(channels)
		if file := e.cfg.Options.TuneOutput; file != "" && e.cfg.Rank == 0 {
			p.trials.write = func(rows []tune.Row) {
				if err := keepRows(file, rows); err != nil {
					e.log("WARN", "%v", err)
				}
			}
		}
	}
	return p, channels
}

// slotFor returns the bytes of a slot of the windows of a group; 0 for no windows. needed means
// that the users' plans read windows.
func slotFor(group *topo.Group, needed bool) int {
	switch room, ranks := group.Room(), group.Size(); {
	case len(group.Hosts()) == ranks && ranks > 1:
		return 0 // nobody would read them
	case needed:
		return max(room, leastSlot)
	case ranks > 1:
		return room
	}
	return 0
}

// start makes the Communicator of a group whose links are open. If it fails, they are closed.
func (e *Endpoint) start(j *joining, planner *planner, channels int) (*Communicator, error) {
	group := planner.group
	relax, bytes := park.Join(group.Threads(e.cfg.Rank)), int64(j.window.Size())
	e.node.windows.Add(bytes)
	planner.told = e.journal(planner)
	leave := sync.OnceFunc(func() {
		planner.told.close()
		relax()
		e.node.windows.Add(-bytes)
	})
	routes := j.routes()
	e.log("INFO", "goccl %s: joined %d ranks%s: %s", Version, group.Size(), hostsText(group), summary(routes))
	if rates := group.Rates(); rates.Known() && e.cfg.Rank == 0 { // all ranks would print the same
		e.log("INFO", "on the slowest machine %v", rates)
	}
	if e.cfg.Options.logs("INFO") {
		for _, line := range pathsText(group, j.links, routes) {
			e.log("INFO", "%s", line)
		}
	}
	if text := apart(group, e.cfg.Rank, e.lacking); text != "" && e.cfg.Options.allows("shm") {
		e.log("INFO", "without shared memory on this machine, %s", text)
	}
	comm, err := exec.New(exec.Options{
		Name: e.cfg.Name, Rank: e.cfg.Rank, Links: j.links, Pollers: e.pollers(routes), Doorbell: e.node.doorbell,
		Channels: channels, Window: j.window, Planner: planner, Keyed: keyedPlanner{planner},
		Trials: planner.trials.exec(), Progress: e.node.progress,
		Timeout:  e.cfg.Timeout,
		FastBF16: e.fastBF16(group), Rotates: group.Claims(), Pinner: pinner(j.fabrics),
		Arena: e.node.arenaFor(j.window), Cache: e.node.cache,
		Record: ringOf(e.cfg.Options.Recorder), CallerRecords: e.cfg.Device, Control: j.control, Group: group,
		WarnAfter: max(e.cfg.Options.WarnAfter, 0),
		Warn:      func(format string, args ...any) { e.log("WARN", format, args...) },
	})
	if err != nil {
		planner.told = nil
		leave()
		closeLinks(j.links)
		j.window.Release()
		return nil, err
	}
	paths := make([]Path, group.Size())
	for rank := range paths {
		of := group.Rank(rank)
		paths[rank] = Path{Rank: rank, Host: of.Host, Pid: of.Pid, Transport: routes[rank]}
		if routes[rank] == "tcp" {
			paths[rank].Why = e.withoutRDMA(rank)
		}
	}
	return &Communicator{node: e.node, comm: comm, leave: leave, links: j.links, paths: paths, group: group,
		planner: planner}, nil
}

// neighbours reports whether two ranks follow each other around the ring of a group. Their paths
// are made in Join, which so finds out whether ranks reach each other; those of others on use.
func neighbours(a, b, size int) bool { return (a+1)%size == b || (b+1)%size == a }

// ringOf returns a ring that remembers the given number of operations, or nil for none.
func ringOf(operations int) *record.Ring {
	if operations == 0 {
		return nil
	}
	return record.New(operations)
}

// windowSlot returns the slot, of at most most bytes, that the windows of one more group may have.
// It assumes that all ranks of the group are in this process.
func (n *Node) windowSlot(ranks, most int) int {
	used := int(n.windows.Load())
	left := windowBudget - used
	free := left
	if used > 0 {
		free -= windowReserve
	}
	share := max(free, min(left, ranks*window.Bytes(smallSlot))) / ranks
	slot := min(most, (share-window.Bytes(0))/plan.WindowSlots) &^ (mem.Align - 1)
	if slot < leastSlot {
		return 0
	}
	return slot
}

// fastBF16 reports whether all ranks have what GOCCL_FAST_BF16 asks for. It changes bits, so either
// all ranks use it or none.
func (e *Endpoint) fastBF16(group *topo.Group) bool {
	if !e.cfg.Options.FastBF16 {
		return false
	}
	for rank := range group.Size() {
		if !group.Rank(rank).BF16 {
			e.log("INFO", "GOCCL_FAST_BF16 has no effect: rank %d has no AVX512_BF16", rank)
			return false
		}
	}
	return true
}

// agree decodes the addresses of all ranks, and returns what the group of them runs on.
func (e *Endpoint) agree(addresses [][]byte) ([]address, *topo.Group, error) {
	peers, err := e.parse(addresses)
	if err != nil {
		return nil, nil, err
	}
	said := make([]topo.Rank, len(peers))
	for rank := range peers {
		said[rank] = peers[rank].Rank
	}
	group, err := topo.Agree(said)
	return peers, group, err
}

// parse decodes the addresses of all ranks and checks them against this rank's own.
func (e *Endpoint) parse(addresses [][]byte) ([]address, error) {
	if len(addresses) != e.cfg.Size {
		return nil, fault.New(fault.Invalid, "got %d addresses for a group of %d ranks", len(addresses), e.cfg.Size)
	}
	var mine address
	if err := json.Unmarshal(e.address, &mine); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "own address")
	}
	peers := make([]address, len(addresses))
	for rank, text := range addresses {
		a := &peers[rank]
		if len(text) > MaxAddress {
			return nil, fault.Peer(fault.Invalid, rank,
				"its address has %d bytes, the limit is %d", len(text), MaxAddress)
		}
		if err := json.Unmarshal(text, a); err != nil {
			return nil, fault.Peer(fault.Invalid, rank, "its address cannot be read: %v", err)
		}
		if what, own, theirs := mine.differsFrom(a); what != "" {
			return nil, fault.Peer(fault.Mismatch, rank,
				"%s: rank %d has %v, rank %d has %v; all ranks of a group need the same",
				what, e.cfg.Rank, own, rank, theirs)
		}
		if a.Slot > e.cfg.Options.slot() || a.Slot%mem.Align != 0 {
			return nil, fault.Peer(fault.Invalid, rank, "its windows have slots of %d bytes", a.Slot)
		}
		if a.Number != rank {
			return nil, fault.Peer(fault.Mismatch, rank, "its address says that it is rank %d", a.Number)
		}
		if e.apart {
			delete(a.Fabrics, "shm")
		}
		a.Transports = slices.Sorted(maps.Keys(a.Fabrics))
		for _, f := range a.Fabrics {
			if len(f) > transport.MaxAddress {
				return nil, fault.Peer(fault.Invalid, rank, "its transport address has %d bytes", len(f))
			}
		}
	}
	if peers[e.cfg.Rank].Nonce != mine.Nonce {
		return nil, fault.Peer(fault.Mismatch, e.cfg.Rank,
			"another process has joined as this rank; is a rank used twice?")
	}
	return peers, nil
}

// differsFrom returns what has to be the same in two addresses and is not, "" if there is nothing.
// Each rank compares all others with itself, so the usual case is quick.
func (a *address) differsFrom(b *address) (what string, mine, theirs any) {
	switch {
	case a.Version != b.Version:
		return "goccl version", a.Version, b.Version
	case a.Format != b.Format:
		return "plan format", a.Format, b.Format
	case a.Client != b.Client:
		return "shim version", a.Client, b.Client
	case a.Device != b.Device:
		return "device of the tensors", deviceOf(a.Device), deviceOf(b.Device)
	case a.Shares != b.Shares:
		return "shared descriptors", someOrNone(a.Shares), someOrNone(b.Shares)
	case a.Options != b.Options:
		own, other := differing(a.Options, b.Options)
		return "options", own, other
	case a.Plans != b.Plans:
		return "contents of GOCCL_PLAN", a.Plans, b.Plans
	case a.Tune != b.Tune:
		return "trials, or rows, of GOCCL_TUNE", orNone(a.Tune), orNone(b.Tune)
	}
	return "", nil, nil
}

// differing returns those of the options of two ranks in which they differ.
func differing(mine, theirs string) (own, other string) {
	a, b := strings.Fields(mine), strings.Fields(theirs)
	if len(a) != len(b) {
		return mine, theirs
	}
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] == b[i] {
			a, b = slices.Delete(a, i, i+1), slices.Delete(b, i, i+1)
		}
	}
	return strings.Join(a, " "), strings.Join(b, " ")
}

// deviceOf says whether a group has its tensors on a device; which one is a rank's own affair.
func deviceOf(device bool) string {
	if device {
		return "a CUDA device"
	}
	return "none"
}

func someOrNone(some bool) string {
	if some {
		return "some, or a note"
	}
	return "none"
}

func orNone(hash string) string {
	if hash == "" {
		return "none"
	}
	return hash
}

// route chooses the fabric that joins this rank to a peer. Both sides choose the same.
func (e *Endpoint) route(peer *address, group *topo.Group) (transport.Fabric, error) {
	neighbour := group.HostOf(e.cfg.Rank) == group.HostOf(peer.Number)
	for _, f := range e.fabrics {
		theirs, ok := peer.Fabrics[f.Name()]
		if !ok || f.SharesMemory() && !neighbour {
			continue
		}
		if f.Name() == "inproc" && peer.Process != e.node.id {
			continue
		}
		if f.Reaches(theirs) {
			return f, nil
		}
	}
	return nil, fault.Peer(fault.NotSupported, peer.Number, "no transport reaches it (host %s, GOCCL_TRANSPORT=%s)%s",
		peer.Host, e.cfg.Options.Transport, e.lacking)
}

// pollers returns the pollers of the transports that the group uses.
func (e *Endpoint) pollers(routes []string) []transport.Poller {
	var used []transport.Poller
	for _, f := range e.fabrics {
		p, ok := f.(transport.Poller)
		for _, route := range routes {
			if ok && route == f.Name() {
				used = append(used, p)
				break
			}
		}
	}
	return used
}

// joinErrors returns the first error that stays, or else one that names every rank that did not
// connect in time.
func joinErrors(errs []error, group *topo.Group) error {
	var late []string
	var ended error // an attempt that was given up
	first, why := fault.NoPeer, ""
	if own := slices.IndexFunc(errs, lacks); own >= 0 {
		return errs[own]
	}
	for rank, err := range errs {
		switch {
		case err == nil:
		case given(err):
			ended = err
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fault.Timeout):
			of := group.Rank(rank)
			late = append(late, fmt.Sprintf("rank %d (host %s, pid %d)", rank, of.Host, of.Pid))
			if first == fault.NoPeer {
				first = rank
				if f := (&fault.Error{}); errors.As(err, &f) {
					why = "; " + f.Text
				}
			}
		default:
			f := &fault.Error{}
			if !errors.As(err, &f) {
				return &fault.Error{Code: fault.System, Peer: rank, Text: "connecting", Cause: err}
			}
			named := *f
			named.Peer = rank
			return &named
		}
	}
	if late == nil {
		return ended
	}
	return &fault.Error{Code: fault.Timeout, Peer: first,
		Text: "did not connect in time: " + strings.Join(late, ", ") + why}
}

func closeLinks(links []transport.Link) {
	for _, link := range links {
		if link != nil {
			link.Close()
		}
	}
}

// sessionOf derives the group's identity and key from the addresses. Each address has a random part
// that only the members know.
func sessionOf(addresses [][]byte) (id [16]byte, key [32]byte) {
	h := sha256.New()
	for _, a := range addresses {
		fmt.Fprintf(h, "%d:", len(a))
		h.Write(a)
	}
	sum := h.Sum(nil)
	secret := sha256.Sum256(append([]byte("key "), sum...))
	public := sha256.Sum256(append([]byte("id "), sum...))
	return [16]byte(public[:16]), secret
}

func (e *Endpoint) named(err error) error { return e.in("join", err) }

// in adds to an error what this rank was doing.
func (e *Endpoint) in(what string, err error) error {
	f := &fault.Error{}
	if !errors.As(err, &f) {
		f = fault.Wrap(fault.System, err, "joining")
	}
	return f.In(fault.Label(e.cfg.Name, e.cfg.Rank, e.cfg.Size), what)
}
