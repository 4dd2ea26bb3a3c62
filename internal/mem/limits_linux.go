package mem

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
)

// AddressesLeft returns how many bytes of address space the limit of this process (RLIMIT_AS,
// ulimit -v) leaves; limited is false if there is no limit.
func AddressesLeft() (bytes int, limited bool) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) != nil || limit.Cur >= math.MaxInt64 {
		return 0, false
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, true
	}
	pages, _, _ := strings.Cut(string(text), " ")
	used, _ := strconv.Atoi(pages)
	return max(int(limit.Cur)-used*os.Getpagesize(), 0), true
}

// Admits returns an error if the limit of the size of files of this process, which counts for
// shared memory too, refuses segments of this size.
func Admits(bytes int) error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) != nil || limit.Cur >= uint64(bytes) {
		return nil
	}
	return fault.New(fault.NotSupported, "no shared memory for segments of %d bytes; %s", bytes, remedyOf(unix.EFBIG))
}

// remedyOf says what helps against the error of a segment that could not be made.
func remedyOf(err error) string {
	switch {
	case errors.Is(err, unix.EFBIG):
		var limit unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_FSIZE, &limit)
		return fmt.Sprintf("the limit of the size of files (ulimit -f, RLIMIT_FSIZE) is %d bytes, and counts for shared "+
			"memory too; raise it, or set GOCCL_TRANSPORT=tcp on all ranks", limit.Cur)
	case errors.Is(err, unix.EMFILE):
		return "the limit of open files (ulimit -n, RLIMIT_NOFILE) is reached"
	}
	return remedy
}
