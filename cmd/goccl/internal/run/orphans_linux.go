package run

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
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
		if err == nil && !r.ranks[pid] && isZombie(pid, os.Getpid()) {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// isZombie reports whether a process is a child of parent, and has ended.
func isZombie(pid, parent int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name of the program, in parentheses, may contain anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	return len(fields) > 1 && string(fields[0]) == "Z" && string(fields[1]) == strconv.Itoa(parent)
}
