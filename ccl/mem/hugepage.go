package mem

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
)

// hugeBytes is the size of the huge pages that segments use: what amd64 has, and arm64 with small
// pages of 4 KiB. Segments of this size or more begin at a multiple of it, in the processes that
// receive them too.
const hugeBytes = 2 << 20

// HugeWay is how shared memory comes to lie in huge pages.
type HugeWay int

const (
	SmallPages HugeWay = iota // it does not
	Advised                   // the kernel is asked before the first touch (MADV_HUGEPAGE)
	Collapsed                 // pages are put together after they were allocated (MADV_COLLAPSE)
)

func (w HugeWay) String() string {
	return [...]string{"small pages", "on advice", "put together afterwards"}[w]
}

// HugePages is what became of a trial of huge pages in shared memory.
type HugePages struct {
	Way      HugeWay
	Why      string // where Way is SmallPages
	Setting  string // shmem_enabled, in the kernel's words; "" where it has no such setting
	Reserved string // why memory of reserved huge pages (hugetlbfs) cannot be had; "" if it can
}

// ProbeHugePages finds out by trying. The settings, and the kernel's account of what the trial got,
// are read from the /sys and /proc below root ("/" for the real ones).
//
// The setting alone says too little. "never", which kernels come with, means that no shared memory
// gets huge pages by itself or on advice, but since Linux 6.1 a process may put its pages together;
// only "deny" forbids that too. And under each of the others there may be no huge page left, or a
// process may have been set to do without.
func ProbeHugePages(root string) HugePages {
	return probeHugePages(root, func(way HugeWay) (int, error) { return tryHugePage(root, way) }, tryReserved)
}

// probeHugePages is given the trials: bytes in huge pages, of hugeBytes, that memory allocated in a
// way has.
func probeHugePages(root string, try func(HugeWay) (int, error), reserved func() error) HugePages {
	const settings = "sys/kernel/mm/transparent_hugepage"
	var h HugePages
	if err := reserved(); err != nil {
		h.Reserved = err.Error()
	}
	bytes, ok := number(path.Join(root, settings, "hpage_pmd_size"))
	if !ok {
		h.Why = "this kernel has no transparent huge pages"
		return h
	}
	text, _ := os.ReadFile(path.Join(root, settings, "shmem_enabled"))
	_, rest, _ := strings.Cut(string(text), "[")
	h.Setting, _, _ = strings.Cut(rest, "]")
	if bytes != hugeBytes {
		h.Why = fmt.Sprintf("huge pages of %d KiB are too large for segments", bytes>>10)
		return h
	}
	ways := []HugeWay{Collapsed}
	switch h.Setting {
	case "always", "within_size", "advise", "force":
		ways = []HugeWay{Advised, Collapsed}
	}
	var failed []string
	for _, way := range ways {
		got, err := try(way)
		switch {
		case err != nil:
			failed = append(failed, fmt.Sprintf("%v: %v", way, err))
		case got < hugeBytes:
			failed = append(failed, fmt.Sprintf("%v: the kernel gave small pages", way))
		default:
			h.Way = way
			return h
		}
	}
	h.Why = strings.Join(failed, "; ")
	return h
}

// hugePages is the probe of this process, done when the first large segment is made.
var hugePages = sync.OnceValue(func() HugePages { return ProbeHugePages("/") })

// hugeIn adds up how much of the shared memory from start to end is mapped in huge pages, by the
// text of /proc/PID/smaps.
func hugeIn(smaps io.Reader, start, end uint64) (bytes int) {
	inside := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		if low, high, ok := strings.Cut(words[0], "-"); ok {
			from, err1 := strconv.ParseUint(low, 16, 64)
			to, err2 := strconv.ParseUint(high, 16, 64)
			inside = err1 == nil && err2 == nil && from < end && start < to
			if err1 == nil && from >= end {
				break // mappings are listed by address
			}
			continue
		}
		if inside && words[0] == "ShmemPmdMapped:" && len(words) > 1 {
			kib, _ := strconv.Atoi(words[1])
			bytes += kib << 10
		}
	}
	return bytes
}
