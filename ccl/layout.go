package ccl

import (
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl/park"
)

// hostsOf returns the ranks of each host, in ascending order; hosts are in the order of their first
// ranks. The ranks of a host share memory. All ranks of a group find the same, since they have the
// same addresses.
func hostsOf(peers []address) (hosts [][]int) {
	index := map[string]int{}
	for rank := range peers {
		memory := peers[rank].memory(rank)
		at, known := index[memory]
		if !known {
			at = len(hosts)
			index[memory], hosts = at, append(hosts, nil)
		}
		hosts[at] = append(hosts[at], rank)
	}
	return hosts
}

// memory identifies the ranks with which a rank can share memory.
func (a *address) memory(rank int) string {
	if _, shm := a.Fabrics["shm"]; shm {
		return a.Place.Memory()
	}
	if _, inproc := a.Fabrics["inproc"]; inproc {
		return a.Node
	}
	return fmt.Sprint(rank)
}

// sameSize reports whether all hosts have the same number of ranks.
func sameSize(hosts [][]int) bool {
	for _, ranks := range hosts {
		if len(ranks) != len(hosts[0]) {
			return false
		}
	}
	return true
}

// sizes describes hosts in messages, where some have several ranks: " on hosts of 2, 2".
func sizes(hosts [][]int) string {
	var words []string
	several := false
	for _, ranks := range hosts {
		words = append(words, fmt.Sprint(len(ranks)))
		several = several || len(ranks) > 1
	}
	if len(hosts) < 2 || !several {
		return ""
	}
	if most := 16; len(words) > most {
		words = append(words[:most], "…")
	}
	return " on hosts of " + strings.Join(words, ", ")
}

// cores identifies the ranks that may share cores with a rank. Processes whose processor time is
// limited share it with those of their container only, which has a network of its own.
func (a *address) cores() string {
	set, err := park.ParseCPUs(a.Cores)
	if err == nil && a.Usable > 0 && a.Usable < set.Count() {
		return a.Place.Loopback()
	}
	return a.Place.Machine
}

// places returns where the ranks of a group run.
func places(peers []address) []park.Place {
	all := make([]park.Place, len(peers))
	for rank := range peers {
		a := &peers[rank]
		all[rank] = park.Place{Host: a.cores(), Cores: a.Cores, Usable: a.Usable}
	}
	return all
}

// threads returns the ranks that may share cores with a rank, as package park counts them. Ranks of
// one process wait in threads of their own.
func threads(peers []address, rank int) []park.Local {
	var all []park.Local
	inProcess := map[string]int{}
	here := peers[rank].cores()
	for i := range peers {
		a := &peers[i]
		if a.cores() == here {
			all = append(all, park.Local{Process: fmt.Sprintf("%s/%d", a.Node, inProcess[a.Node]), Cores: a.Cores})
			inProcess[a.Node]++
		}
	}
	return all
}
