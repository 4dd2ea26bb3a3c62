package run

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/goccl/goccl/ccl/topo/probe"
)

// reaper takes the exit status of processes that have lost their parents, where this process gets
// them: as process 1 of a container. Otherwise they would stay as zombies.
type reaper struct {
	mu    sync.Mutex
	ranks map[int]bool // which are waited for elsewhere
}

// newReaper returns the reaper of this process, nil if it gets no orphans.
func newReaper() *reaper {
	if os.Getpid() != 1 {
		return nil
	}
	r := &reaper{ranks: map[int]bool{}}
	children := make(chan os.Signal, 1) // one that is not taken yet counts for all
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			r.reap()
		}
	}()
	return r
}

// start starts the process of a rank, which is never taken for an orphan.
func (r *reaper) start(cmd *exec.Cmd) error {
	if r == nil {
		return cmd.Start()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		r.ranks[cmd.Process.Pid] = true
	}
	return err
}

// ended says that the process of a rank has been waited for.
func (r *reaper) ended(cmd *exec.Cmd) {
	if r == nil {
		return
	}
	r.mu.Lock()
	delete(r.ranks, cmd.Process.Pid)
	r.mu.Unlock()
	r.reap() // those of the rank may have come meanwhile
}

func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || r.ranks[pid] {
			continue
		}
		if s, ok := probe.ReadStat(pid); ok && s.State == "Z" && s.Parent == os.Getpid() {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}
