package park

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// CPUSet is a set of processors, one bit each. Its text form is Linux's list: "0-3,8".
type CPUSet []uint64

// maxCPU bounds the processor numbers in a list, because peers send such lists.
const maxCPU = 1 << 13

// ParseCPUs parses a list; "" is the empty set.
func ParseCPUs(list string) (CPUSet, error) {
	var s CPUSet
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.ParseUint(low, 10, 32)
		last, err2 := strconv.ParseUint(high, 10, 32)
		if err1 != nil || err2 != nil || first > last || last >= maxCPU {
			return nil, fmt.Errorf("%q is not a list of processors such as 0-3,8, below %d", list, maxCPU)
		}
		for cpu := first; cpu <= last; cpu++ {
			s = s.With(int(cpu))
		}
	}
	return s, nil
}

// With returns s with one more processor.
func (s CPUSet) With(cpu int) CPUSet {
	for len(s) <= cpu/64 {
		s = append(s, 0)
	}
	s[cpu/64] |= 1 << (cpu % 64)
	return s
}

// Has reports whether cpu is in s.
func (s CPUSet) Has(cpu int) bool { return cpu >= 0 && cpu/64 < len(s) && s[cpu/64]>>(cpu%64)&1 != 0 }

// Count returns the number of processors in s.
func (s CPUSet) Count() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// Overlaps reports whether the two sets have a processor in common.
func (s CPUSet) Overlaps(other CPUSet) bool {
	for i := range min(len(s), len(other)) {
		if s[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// union adds other to s.
func (s CPUSet) union(other CPUSet) CPUSet {
	for len(s) < len(other) {
		s = append(s, 0)
	}
	for i, word := range other {
		s[i] |= word
	}
	return s
}

// String returns the list form of s.
func (s CPUSet) String() string {
	var parts []string
	for cpu := 0; cpu < len(s)*64; cpu++ {
		if !s.Has(cpu) {
			continue
		}
		first := cpu
		for s.Has(cpu + 1) {
			cpu++
		}
		if first == cpu {
			parts = append(parts, strconv.Itoa(cpu))
		} else {
			parts = append(parts, strconv.Itoa(first)+"-"+strconv.Itoa(cpu))
		}
	}
	return strings.Join(parts, ",")
}
