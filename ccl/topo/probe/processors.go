package probe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/internal/park"
)

func cores(m *topo.Machine) topo.Finding {
	n := len(m.Processors)
	found := topo.Finding{Name: "cores", State: topo.OK,
		Value: fmt.Sprintf("%d (processors %s)", n, list(m.Processors))}
	if m.Quota > 0 && m.Quota < float64(n) {
		found.Value = fmt.Sprintf("%s of processors %s, by %s",
			strconv.FormatFloat(m.Quota, 'g', 3, 64), list(m.Processors), m.QuotaFile)
		found.State = topo.Info
		found.Hint = "a control group grants less time than there are processors: ranks beyond that give each other the core at every wait"
		n = park.Granted(n, m.Quota)
	}
	if n < 2 {
		found.State, found.Hint = topo.Missing, "ranks that share one core hand it to each other at every step"
	}
	return found
}

// ratesFinding reports what cores and memory do.
func ratesFinding(k Kept) topo.Finding {
	found := topo.Finding{Name: "memory rates", State: topo.Info, Value: k.Rates.String()}
	if k.Rates.Known() {
		found.Value += fmt.Sprintf("; measured %s, at load %.1f", k.Measured.Format(time.DateTime), k.Load)
	}
	return found
}

// granted describes what a container grants of memory, "" if nothing is less than there is.
func granted(m *topo.Machine) (text string) {
	if m.Limit > 0 {
		text += fmt.Sprintf("; %s granted, by %s", size(m.Limit), m.LimitFile)
	}
	if m.Shared > 0 {
		text += fmt.Sprintf("; /dev/shm holds %s", size(m.Shared))
	}
	return text
}

func cacheFinding(m *topo.Machine) topo.Finding {
	found := topo.Finding{Name: "caches", State: topo.Info}
	var parts []string
	for level := 1; level <= 4; level++ {
		c := m.Cache(level)
		if c.Bytes == 0 {
			continue
		}
		name := "L" + strconv.Itoa(level)
		if level == 1 {
			name += "d"
		}
		part := name + " " + size(c.Bytes)
		if len(c.Processors) > 1 {
			part += fmt.Sprintf(" (shared by %s)", list(c.Processors))
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		found.Value, found.Hint = "not told by the system", "sizes that are usual are assumed"
		return found
	}
	found.State, found.Value = topo.OK, strings.Join(parts, ", ")
	return found
}

func nodeFinding(m *topo.Machine) topo.Finding {
	found := topo.Finding{Name: "NUMA nodes", State: topo.OK}
	if len(m.Nodes) == 0 {
		found.State, found.Value = topo.Info, "not told by the system"
		return found
	}
	var parts []string
	for _, n := range m.Nodes {
		parts = append(parts, fmt.Sprintf("%d (processors %s, %s)", n.ID, list(n.Processors), size(n.Bytes)))
	}
	found.Value = strings.Join(parts, ", ")
	if home := m.Home(); len(home) > 1 {
		found.State = topo.Info
		found.Hint = "memory of another node is slower: bind each rank to one, by torchrun --numa-binding node or numactl -N n -m n"
	}
	return found
}

// pageFinding reports which pages segments get. Huge pages save address translations, a few percent
// on large messages.
func pageFinding(m *topo.Machine, h mem.HugePages) topo.Finding {
	const setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	p := m.Pages
	found := topo.Finding{Name: "huge pages", State: topo.OK}
	if p.Bytes == 0 {
		found.State, found.Value, found.Hint = topo.Info, "not supported by this kernel",
			"windows are made of small pages"
		return found
	}
	reserved := "memfd gets them"
	if h.Reserved != "" {
		reserved = "memfd gets none: " + h.Reserved
	}
	found.Value = fmt.Sprintf("%s, private %s, shared %s; in a trial shared memory got %s; %d reserved, %d free (%s)",
		size(p.Bytes), or(p.Anonymous, "unknown"), or(p.Shared, "unknown"), trial(h), p.Reserved, p.Free, reserved)
	if h.Way != mem.SmallPages {
		return found
	}
	found.State = topo.Missing
	switch p.Shared {
	case "always", "within_size", "advise", "force":
		found.Hint = "windows are made of small pages though the setting allows others: free memory may be in pieces (echo 1 > /proc/sys/vm/compact_memory), " +
			"or the process was started without them (PR_SET_THP_DISABLE)"
	default:
		found.Hint = "windows are made of small pages; allow large ones: echo advise > " + setting
	}
	return found
}

func trial(h mem.HugePages) string {
	if h.Way == mem.SmallPages {
		return "none (" + or(h.Why, "unknown") + ")"
	}
	return "them, " + h.Way.String()
}

// homeFinding reports on which NUMA node the segments of this process are.
func homeFinding(h mem.Home) topo.Finding {
	found := topo.Finding{Name: "memory placement", State: topo.OK}
	switch {
	case h.Node >= 0:
		found.Value = fmt.Sprintf("segments on node %d, while it has room", h.Node)
	case h.Nodes < 2:
		found.Value = "nothing to choose: " + h.Why
	default:
		found.State, found.Value = topo.Info, "left to the kernel: "+h.Why
		found.Hint = "segments lie where the thread that makes them runs; bind each rank to one node with memory, by torchrun --numa-binding node or numactl -N n -m n"
	}
	return found
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// size formats bytes in the largest unit of which there is at least one, with at most one digit
// after the point.
func size(bytes int64) string {
	for _, unit := range []struct {
		name  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if bytes >= 1<<unit.shift {
			return trim(float64(bytes)/float64(int64(1)<<unit.shift)) + " " + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10) + " B"
}

// trim formats x with at most one digit after the point.
func trim(x float64) string { return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0") }
