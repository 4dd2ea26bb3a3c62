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

// hugeBytes is the size of the huge pages that segments use: the size on amd64, and on arm64 with
// small pages of 4 KiB. Segments of this size or more begin at a multiple of it, also in the
// processes that receive them.
const hugeBytes = 2 << 20

// HugeWay is the way in which shared memory gets huge pages.
type HugeWay int

const (
	SmallPages HugeWay = iota // it gets none
	Advised                   // the kernel is asked before the first touch (MADV_HUGEPAGE)
	Collapsed                 // pages are collapsed after their allocation (MADV_COLLAPSE)
)

func (w HugeWay) String() string {
	return [...]string{"small pages", "on advice", "put together afterwards"}[w]
}

// HugePages is the result of a trial of huge pages in shared memory.
type HugePages struct {
	Way      HugeWay
	Why      string // the reason, where Way is SmallPages
	Setting  string // shmem_enabled, in the kernel's words; "" where it has no such setting
	Reserved string // why no reserved huge page (hugetlbfs) can be allocated; "" if one can
}

// ProbeHugePages finds out by a trial how shared memory gets huge pages. The settings, and the
// kernel's account of the pages that the trial got, are read from the /sys and /proc below root
// ("/" for the real ones).
//
// The setting alone does not decide. "never", the default of kernels, means that no shared memory
// gets huge pages by itself or on advice, but since Linux 6.1 a process may collapse its pages;
// only "deny" forbids that too. Under each of the other settings there may be no huge page left, or
// huge pages may have been disabled for the process.
func ProbeHugePages(root string) HugePages {
	return probeHugePages(root, func(way HugeWay) (int, error) { return tryHugePage(root, way) }, tryReserved)
}

// probeHugePages is ProbeHugePages with the trials as arguments. try returns how many bytes of a
// memory of hugeBytes, allocated in the given way, are in huge pages.
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

// hugeIn returns how many bytes of the shared memory from start to end are mapped in huge pages,
// according to the text of /proc/PID/smaps.
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
