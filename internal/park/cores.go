package park

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// host is what this process knows about the machine that it shares with other ranks.
var host = struct {
	due atomic.Int64 // when the limits are to be read again; 0 until they are first read

	mu       sync.Mutex
	root     string // of /proc and /sys
	allowed  func() CPUSet
	loaded   bool
	files    []quotaFile
	affinity CPUSet
	quota    float64
	crowded  bool // ranks outnumber cores: a waiter's core is needed by the ranks that it waits for
	ranks    map[string]*rank
}{root: "/", allowed: Affinity, quota: math.Inf(1), ranks: map[string]*rank{}}

type rank struct {
	groups int // groups that it shares with this process
	cores  CPUSet
}

// rereadEvery is how long limits on processor time are trusted: containers are resized while they
// run.
const rereadEvery = int64(time.Second)

// findLimits finds the limits on this process and reads them. The caller holds host.mu.
func findLimits() {
	host.loaded = true
	host.files = quotaFiles(host.root)
	readLimits()
}

func readLimits() {
	if a := host.allowed(); len(a) > 0 {
		host.affinity = a
	}
	host.quota, _ = readQuota(host.files)
	host.due.Store(now() + rereadEvery)
	crowd()
}

// crowd determines whether ranks outnumber cores. After a change, waits rely on the result until
// yields tell more.
func crowd() {
	if c := crowding(); c != host.crowded {
		host.crowded = c
		share.presume(c)
	}
}

// reread reads the limits again if that is due and no other thread is about to. A thread that is
// about to sleep calls it, since nothing waits for that thread.
func reread(t int64) {
	if due := host.due.Load(); due == 0 || t < due || !host.due.CompareAndSwap(due, t+rereadEvery) {
		return
	}
	host.mu.Lock()
	defer host.mu.Unlock()
	readLimits()
}

// Cores returns the number of cores that this process may use at the same time: those that it may
// run on, but no more than its control groups grant.
func Cores() int {
	host.mu.Lock()
	defer host.mu.Unlock()
	if !host.loaded {
		findLimits()
	}
	return cores(host.affinity)
}

func cores(set CPUSet) int {
	n := set.Count()
	if n == 0 {
		n = runtime.NumCPU()
	}
	return Granted(n, host.quota)
}

// Granted returns how many of some cores a process may use at the same time to which its control
// groups grant the time of so many: with 1.5 a second thread would often wait.
func Granted(cores int, quota float64) int { return max(1, int(min(float64(cores), quota))) }

// Local describes one rank of a group that runs on this host; the rank of this process is included.
type Local struct {
	Process string // identifies the process; the same in every group
	Cores   string // where it may run: Affinity().String() there; "" if not known
}

// Join registers the ranks of a group that share this host; leave unregisters them when the group
// ends. A process is counted once, however many groups it is in. The ranks and the cores together
// decide whether waits may spin.
func Join(local []Local) (leave func()) {
	sets := make([]CPUSet, len(local))
	for i, l := range local {
		sets[i], _ = ParseCPUs(l.Cores) // an unreadable list counts as not known
	}
	calibrate()
	host.mu.Lock()
	defer host.mu.Unlock()
	for i, l := range local {
		r := host.ranks[l.Process]
		if r == nil {
			r = &rank{}
			host.ranks[l.Process] = r
		}
		r.groups++
		r.cores = sets[i]
	}
	findLimits()
	return sync.OnceFunc(func() {
		host.mu.Lock()
		defer host.mu.Unlock()
		for _, l := range local {
			r := host.ranks[l.Process]
			if r.groups--; r.groups == 0 {
				delete(host.ranks, l.Process)
			}
		}
		crowd()
	})
}

// LocalRanks returns how many ranks of all groups share this host.
func LocalRanks() int {
	host.mu.Lock()
	defer host.mu.Unlock()
	return len(host.ranks)
}

// crowding reports whether the ranks that may run on the cores of this process outnumber the cores
// that they have together. Ranks bound to cores of their own do not crowd each other, however few
// cores each of them has.
func crowding() bool {
	n, union := 0, append(CPUSet(nil), host.affinity...)
	for _, r := range host.ranks {
		if len(r.cores) == 0 || len(host.affinity) == 0 || r.cores.Overlaps(host.affinity) {
			n++
			union = union.union(r.cores)
		}
	}
	return n > cores(union)
}
