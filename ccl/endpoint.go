package ccl

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/record"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/ccl/tune"
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
	Options Options
	Client  string // version of the layer above (the torch shim); must be the same on all ranks
	Device  bool   // the Communicator is for OnDevice, and nothing else; must be the same on all ranks
	Bus     string // where the device is on the PCI bus, "0000:65:00.0"; "" without one

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
}

// address holds the data that a rank sends to the others before they join. It is untrusted until
// checked.
type address struct {
	Version string            `json:"version"`
	Format  int               `json:"format"`
	Client  string            `json:"client"`
	Device  bool              `json:"device,omitempty"`
	Shares  bool              `json:"shares,omitempty"`
	Rank    int               `json:"rank"`
	Size    int               `json:"size"`
	Options string            `json:"options"`
	Plans   string            `json:"plans,omitempty"`
	Tune    string            `json:"tune,omitempty"`
	Node    string            `json:"node"`
	Host    string            `json:"host"`
	Place   topo.Place        `json:"place"`
	Pid     int               `json:"pid"`
	Cores   string            `json:"cores"`
	Usable  int               `json:"usable"` // how many of them at the same time
	Slot    int               `json:"slot"`   // bytes of a slot of a window, as much as this rank can give
	Nonce   string            `json:"nonce"`
	BF16    bool              `json:"bf16,omitempty"` // GOCCL_FAST_BF16 is set and the CPU supports it
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
	cfg.Options.EnsureDefaults()
	if err := cfg.Options.Validate(); err != nil {
		return nil, err
	}
	if err := transport.CheckShare(cfg.Share, cfg.Note); err != nil {
		return nil, err
	}
	cfg.Share, cfg.Note = slices.Clone(cfg.Share), slices.Clone(cfg.Note)
	if cfg.Options.Timeout > 0 {
		cfg.Timeout = cfg.Options.Timeout
	}
	plans, contents, err := loadPlans(&cfg.Options)
	if err != nil {
		return nil, err
	}
	table, rows, err := loadTable(&cfg.Options)
	if err != nil {
		return nil, err
	}
	fabrics, lacking, err := n.fabricsFor(&cfg.Options)
	if err != nil {
		return nil, err
	}
	var nonce [16]byte
	rand.Read(nonce[:])
	host, _ := os.Hostname()
	place, _ := probe.Place("/")
	a := address{Version: Version, Format: PlanFormat, Client: cfg.Client, Device: cfg.Device, Shares: cfg.shares(),
		Rank: cfg.Rank, Size: cfg.Size,
		Options: cfg.Options.agreed(), Plans: contents, Tune: rows, Node: n.id, Host: host, Place: place,
		Pid: os.Getpid(), Cores: park.Affinity().String(), Usable: park.Cores(),
		Slot: n.windowSlot(cfg.Size, cfg.Options.slot()), Nonce: hex.EncodeToString(nonce[:]),
		BF16: cfg.Options.FastBF16 && kernel.HasFastBF16(), Fabrics: map[string][]byte{}}
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
	e := &Endpoint{node: n, cfg: cfg, address: text, plans: plans, table: table, fabrics: fabrics, lacking: lacking}
	e.tellOtherPlans()
	return e, nil
}

// Address returns the data that the other ranks need to join this one.
func (e *Endpoint) Address() []byte { return e.address }

// Join connects this rank to all others. addresses[r] is the Address of rank r, including this
// rank's own. Join returns when every rank has joined or, if ctx ends first, with an error that
// names the ranks that did not.
func (e *Endpoint) Join(ctx context.Context, addresses [][]byte) (*Communicator, error) {
	peers, err := e.parse(addresses)
	if err != nil {
		return nil, e.named(err)
	}
	session, key := sessionOf(addresses)
	links := make([]transport.Link, e.cfg.Size)
	j := &joining{self: e.cfg.Rank, size: e.cfg.Size, links: links, errs: make([]error, e.cfg.Size)}
	routes := make([]string, e.cfg.Size)
	fabrics := make([]transport.Fabric, e.cfg.Size)
	for peer := range peers {
		if peer == e.cfg.Rank {
			continue
		}
		if fabrics[peer], j.errs[peer] = e.route(peers, peer); j.errs[peer] == nil {
			routes[peer] = fabrics[peer].Name()
		}
	}
	e.node.sit(&e.cfg, peers)
	planner := newPlanner(&e.cfg.Options, e.plans)
	if e.cfg.Rank == 0 { // all ranks would print the same
		planner.warn = func(format string, args ...any) { e.log("WARN", format, args...) }
	}
	planner.rules.Table = e.table
	planner.onHosts(hostsOf(peers))
	planner.rules.Oversubscribed = park.Oversubscribed(places(peers))
	channels, windows := planner.needs(e.cfg.Size)
	slot := 0
	if len(planner.hosts) < e.cfg.Size || e.cfg.Size == 1 { // a host has several ranks
		slot = agreedSlot(peers, windows)
	}
	var shared *mem.Window
	if slot > 0 {
		between := func(route string) bool { return route != "" && route != "inproc" }
		if shared, err = mem.NewWindow(window.Bytes(slot), slices.ContainsFunc(routes, between)); err != nil {
			return nil, e.named(err)
		}
	}
	planner.rules.HostSlot = slot
	planner.rules.Windows = shared != nil && len(planner.hosts) == 1
	control := new(exec.Control)
	j.connect(ctx, fabrics, peers, func(peer int) transport.Session {
		return transport.Session{ID: session, Rank: e.cfg.Rank, Peer: peer, Channels: exec.LinkChannels(channels),
			Key: key, Window: shared, OnUse: !neighbours(e.cfg.Rank, peer, e.cfg.Size),
			Share: e.cfg.Share, Note: e.cfg.Note,
			Control: func(message []byte) { control.Hear(peer, message) }}
	})
	shared.Joined()
	for peer, link := range links {
		if shared != nil && link != nil && fabrics[peer].SharesMemory() && link.Window() == nil {
			j.ended(peer, fault.Peer(fault.Internal, peer,
				"it shares memory with rank %d, but lends no window", e.cfg.Rank))
		}
	}
	if err := j.err(peers); err != nil {
		j.leave(peers)
		shared.Release()
		return nil, e.named(err)
	}
	relax, bytes := park.Join(threads(peers, e.cfg.Rank)), int64(shared.Size())
	e.node.windows.Add(bytes)
	planner.told = e.journal(planner)
	leave := sync.OnceFunc(func() {
		planner.told.close()
		relax()
		e.node.windows.Add(-bytes)
	})
	e.log("INFO", "joined %d ranks%s: %s", e.cfg.Size, sizes(planner.hosts), summary(routes))
	comm, err := exec.New(exec.Options{
		Name: e.cfg.Name, Rank: e.cfg.Rank, Links: links, Pollers: e.pollers(routes), Doorbell: e.node.doorbell,
		Channels: channels, Window: shared, Planner: planner, Keyed: keyedPlanner{planner}, Progress: e.node.progress,
		Timeout:  e.cfg.Timeout,
		FastBF16: e.fastBF16(peers), Pinner: pinner(fabrics), Arena: e.node.arenaFor(shared), Cache: e.node.cache,
		Record: ringOf(e.cfg.Options.Recorder), CallerRecords: e.cfg.Device, Control: control, Hosts: planner.hosts,
		WarnAfter: e.cfg.Options.warnAfter(),
		Warn:      func(format string, args ...any) { e.log("WARN", format, args...) },
	})
	if err != nil {
		planner.told = nil
		leave()
		closeLinks(links)
		shared.Release()
		return nil, e.named(err)
	}
	paths := make([]Path, e.cfg.Size)
	for rank := range paths {
		paths[rank] = Path{Rank: rank, Host: peers[rank].Host, Pid: peers[rank].Pid, Transport: routes[rank]}
		if routes[rank] == "tcp" {
			paths[rank].Why = e.withoutRDMA(&peers[rank])
		}
	}
	return e.node.register(&Communicator{node: e.node, comm: comm, leave: leave, links: links, paths: paths,
		hosts: planner.hosts, planner: planner, origin: &origin{endpoint: e, addresses: addresses, fabrics: fabrics}})
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
func (e *Endpoint) fastBF16(peers []address) bool {
	if !e.cfg.Options.FastBF16 {
		return false
	}
	lacking := slices.IndexFunc(peers, func(a address) bool { return !a.BF16 })
	if lacking >= 0 {
		e.log("INFO", "GOCCL_FAST_BF16 has no effect: rank %d has no AVX512_BF16", lacking)
	}
	return lacking < 0
}

// agreedSlot returns the slot that all ranks can give, or 0 for no windows. It is the same on all
// hosts, since it decides into how many pieces operations are cut.
func agreedSlot(peers []address, needed bool) int {
	slot := peers[0].Slot
	for i := range peers {
		slot = min(slot, peers[i].Slot)
	}
	switch {
	case needed:
		return max(slot, leastSlot)
	case len(peers) > 1:
		return slot
	}
	return 0
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
		for _, check := range []struct {
			what        string
			mine, other any
		}{
			{"goccl version", mine.Version, a.Version},
			{"plan format", mine.Format, a.Format},
			{"shim version", mine.Client, a.Client},
			{"number of ranks", mine.Size, a.Size},
			{"device of the tensors", deviceOf(mine.Device), deviceOf(a.Device)},
			{"shared descriptors", someOrNone(mine.Shares), someOrNone(a.Shares)},
			{"options", mine.Options, a.Options},
			{"contents of GOCCL_PLAN", mine.Plans, a.Plans},
			{"rows of GOCCL_TUNE", orNone(mine.Tune), orNone(a.Tune)},
		} {
			if check.mine != check.other {
				return nil, fault.Peer(fault.Mismatch, rank,
					"%s: rank %d has %v, rank %d has %v; all ranks of a group need the same",
					check.what, e.cfg.Rank, check.mine, rank, check.other)
			}
		}
		if a.Slot < 0 || a.Slot > e.cfg.Options.slot() || a.Slot%mem.Align != 0 {
			return nil, fault.Peer(fault.Invalid, rank, "its windows have slots of %d bytes", a.Slot)
		}
		if a.Rank != rank {
			return nil, fault.Peer(fault.Mismatch, rank, "its address says that it is rank %d", a.Rank)
		}
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
func (e *Endpoint) route(peers []address, peer int) (transport.Fabric, error) {
	host := peers[e.cfg.Rank].memory(e.cfg.Rank) == peers[peer].memory(peer)
	for _, f := range e.fabrics {
		theirs, ok := peers[peer].Fabrics[f.Name()]
		if !ok || f.SharesMemory() && !host {
			continue
		}
		if f.Name() == "inproc" && peers[peer].Node != e.node.id {
			continue
		}
		if f.Reaches(theirs) {
			return f, nil
		}
	}
	return nil, fault.Peer(fault.NotSupported, peer, "no transport reaches it (host %s, GOCCL_TRANSPORT=%s)%s",
		peers[peer].Host, e.cfg.Options.Transport, e.lacking)
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
func joinErrors(errs []error, peers []address) error {
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
			late = append(late, fmt.Sprintf("rank %d (host %s, pid %d)", rank, peers[rank].Host, peers[rank].Pid))
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

// summary counts routes: "3 by shm, 4 by tcp".
func summary(routes []string) string {
	counts := map[string]int{}
	for _, r := range routes {
		if r != "" {
			counts[r]++
		}
	}
	if len(counts) == 0 {
		return "alone"
	}
	var parts []string
	for name, n := range counts {
		parts = append(parts, fmt.Sprintf("%d by %s", n, name))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}
