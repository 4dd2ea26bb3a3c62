package drill

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// unsupported is nil where the drill can run.
var unsupported error

const fdFolder = "/proc/self/fd"

// descriptors returns what is open in this process, as "7 socket:[1234]".
func descriptors() map[string]bool {
	all := map[string]bool{}
	each(func(fd int, name string) { all[fmt.Sprint(fd, " ", name)] = true })
	return all
}

// each calls f with every open descriptor, except that of the folder which lists them.
func each(f func(fd int, name string)) {
	entries, _ := os.ReadDir(fdFolder)
	for _, entry := range entries {
		name, err := os.Readlink(filepath.Join(fdFolder, entry.Name()))
		if fd, wrong := strconv.Atoi(entry.Name()); err == nil && wrong == nil {
			f(fd, name)
		}
	}
}

// startPolling has the Go runtime open the descriptors that it keeps, so that they are not taken
// for left over ones.
func startPolling() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	w.Close()
	return r.Close()
}

// A rank that is short of memory may map so much more than it has: less than a pool of shared
// memory takes. Its heap and its threads are there before, as in a program that has worked for a
// while: Go ends a program that cannot have more of them.
const (
	roomForMemory = 12 << 20
	heapBefore    = 128 << 20
	threadsBefore = 32
)

// grow makes heap and threads that this process then keeps.
func grow() {
	runtime.KeepAlive(make([]byte, heapBefore))
	runtime.GC()
	var started, over sync.WaitGroup
	end := make(chan struct{})
	for range threadsBefore {
		started.Add(1)
		over.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started.Done()
			<-end
		})
	}
	started.Wait()
	close(end)
	over.Wait()
}

// confine takes a resource from this process.
func confine(what string) error {
	set := func(resource int, most uint64) error {
		var l syscall.Rlimit
		if err := syscall.Getrlimit(resource, &l); err != nil {
			return err
		}
		l.Cur = most
		return syscall.Setrlimit(resource, &l)
	}
	switch what {
	case limitFiles:
		return set(syscall.RLIMIT_FSIZE, 0)
	case limitMemory:
		grow()
		text, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return err
		}
		pages, err := strconv.ParseUint(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return err
		}
		return set(syscall.RLIMIT_AS, pages*uint64(os.Getpagesize())+roomForMemory)
	case limitDescriptors:
		last := 0
		each(func(fd int, _ string) { last = max(last, fd) })
		if err := set(syscall.RLIMIT_NOFILE, uint64(last+1)); err != nil {
			return err
		}
		for { // those below that are free
			if _, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == syscall.EMFILE {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("there is no limit of %s", what)
}

// startHolder starts a process with all descriptors of this one that a forked child would have,
// except for some, and except for the standard ones, by which the drill knows that this process
// lives.
func startHolder(without map[int]bool) (pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	each(func(fd int, name string) {
		// The folder of descriptors is closed by now.
		if fd > 2 && fd != int(null.Fd()) && !without[fd] && !strings.HasSuffix(name, "/fd") {
			files = append(files, uintptr(fd))
		}
	})
	return syscall.ForkExec(self, []string{self, "drill", holderProcess},
		&syscall.ProcAttr{Env: os.Environ(), Files: files})
}

// adopt makes this process the parent of processes whose parent has ended: it can wait for them.
func adopt() error {
	const setChildSubreaper = 36 // prctl(2)
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); err != 0 {
		return err
	}
	return nil
}

// endHolder ends a process that was adopted.
func endHolder(pid int) {
	syscall.Kill(pid, syscall.SIGKILL)
	syscall.Wait4(pid, nil, 0, nil)
}

// children returns the processes whose parent this process is.
func children() (all []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil { // it has ended meanwhile
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			all = append(all, "process "+strings.TrimSuffix(strings.TrimPrefix(name, "/proc/"), "/stat"))
		}
	}
	return all
}

// mountProc shows the processes of this namespace in /proc, by whose numbers the library looks them
// up. The mounts of this process are its own.
func mountProc() error { return syscall.Mount("proc", "/proc", "proc", 0, "") }
