package network

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/humanize"
)

// Limits are what a machine may use of what there is, as its container says; 0 for no limit.
type Limits struct {
	Cores  float64 `json:"cores,omitempty"`  // time of so many cores
	Memory int64   `json:"memory,omitempty"` // bytes
	Shared int64   `json:"shared,omitempty"` // bytes that /dev/shm may hold
}

const mostCores = 1 << 16

// limitsOf returns the limits of a machine that was found.
func limitsOf(m *topo.Machine) Limits {
	return Limits{min(m.Quota, mostCores), min(m.Limit, MaxBytes), min(m.Shared, MaxBytes)}
}

// String describes limits to people, "" without any.
func (l Limits) String() string {
	var parts []string
	if l.Cores > 0 {
		parts = append(parts, fmt.Sprintf("time of %.3g cores", l.Cores))
	}
	if l.Memory > 0 {
		parts = append(parts, humanize.FormatSize(l.Memory)+" of memory")
	}
	if l.Shared > 0 {
		parts = append(parts, humanize.FormatSize(l.Shared)+" in /dev/shm")
	}
	return strings.Join(parts, ", ")
}

// line is their statement of the text form.
func (l Limits) line() string {
	text := "limits"
	if l.Cores > 0 {
		text += " cores=" + strconv.FormatFloat(l.Cores, 'g', -1, 64)
	}
	if l.Memory > 0 {
		text += " memory=" + humanize.FormatSize(l.Memory)
	}
	if l.Shared > 0 {
		text += " shared=" + humanize.FormatSize(l.Shared)
	}
	return text
}

// set reads one word of that statement, such as memory=2G.
func (l *Limits) set(word string) error {
	name, value, _ := strings.Cut(word, "=")
	var err error
	switch name {
	case "cores":
		if l.Cores, err = strconv.ParseFloat(value, 64); err != nil {
			err = fmt.Errorf("cores %s: want a number", quote(value))
		}
	case "memory":
		l.Memory, err = humanize.ParseSize(value)
	case "shared":
		l.Shared, err = humanize.ParseSize(value)
	default:
		err = fmt.Errorf("want cores=NUMBER, memory=BYTES or shared=BYTES, not %s", quote(word))
	}
	return err
}

func (l Limits) wrong() string {
	switch {
	case !(l.Cores >= 0 && l.Cores <= mostCores):
		return fmt.Sprintf("limits: %v cores, want 0 to %d", l.Cores, mostCores)
	case l.Memory < 0 || l.Memory > MaxBytes || l.Shared < 0 || l.Shared > MaxBytes:
		return fmt.Sprintf("limits: memory %d, shared %d, want 0 to 16T", l.Memory, l.Shared)
	}
	return ""
}
