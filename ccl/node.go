package ccl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/cuda/group"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/internal/logs"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/shm"
	"github.com/goccl/goccl/transport/tcp"
)

// Node represents this process as a member of groups: its transports and its progress thread. All
// groups of a process share one Node; several Nodes in a process behave like several processes.
type Node struct {
	id       string
	doorbell *park.Doorbell
	page     *mem.Segment // holds the doorbell; nil if the doorbell is private to this process
	noPage   error        // why page is nil
	progress *exec.Progress
	cache    topo.Cache   // the last-level cache of this machine
	windows  atomic.Int64 // bytes of the windows of all groups
	arena    func() (*mem.Arena, error)
	track    func(fd int, open bool)
	lines    *slog.Logger              // for users
	endLines func() error              // closes the file that they go to
	ofGroups bool                      // closes with its last Communicator
	hidden   bool                      // goccl top is told nothing of it
	opts     NodeOptions               // of those of a part that no group has used yet, a group may have its own
	seat     atomic.Pointer[rdma.Seat] // where this process is, by its first group that may use RDMA

	mu      sync.Mutex
	closed  bool
	comms   map[*Communicator]bool
	devices *group.Thread               // nil before the first device group
	crowded sync.Once                   // the process was told that it has few hardware queues
	arenas  map[gpu]*share.Arena        // registered memory of devices
	fabrics map[string]transport.Fabric // open fabrics by name
	tls     bool                        // that of tcp was opened with TLS
	listens bool                        // the process has a RecordSignal

	recordRank *int            // the number of the files of its records; nil before the first group that has any
	told       map[string]bool // the settings that groups asked for in vain
	noRDMA     error           // why RDMA could not be opened, when it was last tried

	noMemory error // why no memory is shared any more: it was refused between this process and a peer
	door     door  // of newcomers
}

// NewNode makes the Node of a process. Transports are opened for the first group that may use them.
func NewNode(opts NodeOptions) (*Node, error) {
	opts, err := opts.settled()
	if err != nil {
		return nil, err
	}
	lines, endLines := opts.Logger, func() error { return nil }
	if lines == nil {
		if lines, endLines, err = logs.New(opts.DebugFormat, opts.DebugFile); err != nil {
			return nil, refused("GOCCL_DEBUG_FILE", opts.DebugFile, err)
		}
	}
	if opts.Spin != 0 {
		park.SetSpin(max(opts.Spin, 0))
	}
	var id [8]byte
	rand.Read(id[:])
	n := &Node{id: hex.EncodeToString(id[:]), opts: opts, comms: map[*Communicator]bool{}, cache: probe.LastCache("/"),
		fabrics: map[string]transport.Fabric{}, arenas: map[gpu]*share.Arena{}, told: map[string]bool{},
		lines: lines, endLines: endLines, hidden: opts.NoTop}
	opts.warnOfServiceLinks(n.Warn)
	n.arena = sync.OnceValues(opts.newArena)
	// One doorbell serves all transports, whichever is opened first, so it lies where peers can map
	// it.
	if n.page, n.noPage = shm.NewDoorbell(); n.noPage == nil {
		n.doorbell = park.DoorbellAt(n.page.Bytes())
	} else {
		n.doorbell = park.NewDoorbell()
	}
	n.progress = exec.NewProgress(n.doorbell)
	return n, nil
}

// Track has track called with true for each socket that a forked child of this process must close,
// or peers might not notice the death of this process, and with false before the socket is closed
// here. It must be called before the first Open. track must be quick; any thread may call it.
func (n *Node) Track(track func(fd int, open bool)) { n.track = track }

// paths lists the transports in order of preference.
var paths = []struct {
	name string
	open func(*Node, *Options) (transport.Fabric, error)
}{
	{"inproc", func(n *Node, _ *Options) (transport.Fabric, error) {
		fabric := inproc.New(n.doorbell)
		fabric.Arena = n.registered
		return fabric, nil
	}},
	{"shm", func(n *Node, _ *Options) (transport.Fabric, error) {
		if n.noPage != nil {
			return nil, n.noPage
		}
		// What cannot be made later is known now, so all ranks do without this one's memory.
		if err := mem.Admits(max(windowBudget, shm.DefaultPoolBytes)); err != nil {
			return nil, err
		}
		return shm.New(shm.Options{Doorbell: n.page, Arena: n.registered, Track: n.track})
	}},
	{"rdma", (*Node).openRDMA},
	{"tcp", func(n *Node, opts *Options) (transport.Fabric, error) { return n.openTCP(opts) }},
}

// openTCP opens TCP, if no group has used it before.
func (n *Node) openTCP(opts *Options) (rdma.Base, error) {
	if f, ok := n.fabrics["tcp"].(rdma.Base); ok {
		return f, nil
	}
	first, last, err := portsOf(opts.Port)
	if err != nil {
		return nil, err
	}
	f, err := tcp.New(tcp.Options{Doorbell: n.doorbell, Interfaces: opts.SocketIfname, Family: opts.SocketFamily,
		Port: first, LastPort: last, Streams: opts.Streams, Congestion: opts.SocketCongestion,
		PeerTimeout: opts.PeerTimeout, Checksum: opts.Checksum, TLS: opts.TLS, SecretFile: opts.SecretFile,
		Track: n.track, Warn: n.printer(opts, "WARN"), Info: n.printer(opts, "INFO")})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// printer returns what writes the lines of a transport of the process, of one level of GOCCL_DEBUG.
func (n *Node) printer(o *Options, level string) func(format string, args ...any) {
	if !o.logs(level) {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) { n.write(level, fmt.Sprintf(format, args...)) }
}

// Warn writes what concerns the process, and not one group of it. Every GOCCL_DEBUG has warnings.
func (n *Node) Warn(format string, args ...any) { n.write("WARN", fmt.Sprintf(format, args...)) }

// write writes a line, with what it is about.
func (n *Node) write(level, text string, about ...slog.Attr) {
	n.lines.LogAttrs(context.Background(), logs.Levels[level], text, about...)
}

// fabricsFor returns the fabrics that a group may use, in order of preference. It opens those that
// no group has used before. lacking explains why there are no more of them; that is an error only
// if the options leave no choice.
func (n *Node) fabricsFor(cfg *Config) (fabrics []transport.Fabric, lacking string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, "", fault.New(fault.Closed, "the node is closed")
	}
	opts := &Options{GroupOptions: cfg.Options}
	if opts.NodeOptions, err = n.optionsFor(cfg.Node); err != nil {
		return nil, "", err
	}
	for _, path := range paths {
		if !opts.allows(path.name) {
			continue
		}
		if path.name == "shm" && n.noMemory != nil && opts.Transport != "shm" {
			lacking += fmt.Sprintf("; without shm: %v", n.noMemory)
			continue
		}
		fabric := n.fabrics[path.name]
		if fabric == nil {
			fabric, err = path.open(n, opts)
			if path.name == "rdma" {
				n.noRDMA = err
			}
			switch {
			case err == nil:
				n.opened(path.name, fabric, opts)
				if p, ok := fabric.(transport.Poller); ok {
					n.progress.Watch(p)
				}
			case opts.Transport == "shm":
				return nil, "", fault.Wrap(fault.System, err, "GOCCL_TRANSPORT=shm: shared memory cannot be used here")
			case path.name == "rdma" && opts.Transport == "auto" && errors.Is(err, fault.NotSupported):
				continue // most machines have no adapter
			case path.name == "shm" || opts.Transport == "auto" && path.name == "rdma",
				opts.Transport == "auto" && errors.Is(err, fault.NotSupported):
				lacking += fmt.Sprintf("; without %s: %v", path.name, err)
				continue
			default:
				return nil, "", err
			}
		}
		if path.name == "tcp" || path.name == "rdma" {
			if err := n.checkTrust(opts); err != nil {
				return nil, "", err
			}
		}
		fabrics = append(fabrics, fabric)
	}
	if d, ok := n.fabrics["tcp"].(transport.Door); ok {
		n.door.open(d)
	}
	return fabrics, lacking, nil
}

// closeUnused closes a Node that is there for its groups alone, when it has none any more.
func (n *Node) closeUnused() error {
	n.mu.Lock()
	used := !n.ofGroups || n.closed || len(n.comms) > 0
	n.mu.Unlock()
	if used {
		return nil
	}
	return n.Close()
}

// Close closes the Communicators that are still open, and releases everything.
func (n *Node) Close() error {
	n.hide()
	n.mu.Lock()
	n.closed = true
	var open []*Communicator
	for c := range n.comms {
		open = append(open, c)
	}
	n.mu.Unlock()
	for _, c := range open {
		c.leaveGroup()
	}
	if n.devices != nil {
		n.devices.Close()
	}
	n.progress.Close()
	errs := []error{n.closeArenas()}
	for _, path := range paths {
		if fabric := n.fabrics[path.name]; fabric != nil {
			errs = append(errs, fabric.Close())
			if r, ok := fabric.(transport.Registrar); ok && n.registered() != nil {
				n.registered().Unwatch(r)
			}
		}
	}
	if n.page != nil {
		errs = append(errs, n.page.CloseFD()) // threads may still sleep on the doorbell
	}
	return errors.Join(append(errs, n.registered().Close(), n.endLines())...)
}
