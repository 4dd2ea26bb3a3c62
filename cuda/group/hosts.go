package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/plan"
)

// Unfit says why collectives do not go over windows in a group whose ranks are on these hosts; ""
// if they may.
func Unfit(hosts [][]int) string {
	if len(hosts) < 2 {
		return ""
	}
	var sizes []string
	for _, ranks := range hosts {
		sizes = append(sizes, fmt.Sprint(len(ranks)))
	}
	switch most := (plan.MaxLanes - 1) / 2; {
	case !slices.ContainsFunc(hosts, func(ranks []int) bool { return len(ranks) > 1 }):
		return "the ranks share no memory: each is on a host of its own, or is linked by TCP"
	case slices.ContainsFunc(sizes, func(n string) bool { return n != sizes[0] }):
		return "the ranks are on hosts of " + strings.Join(sizes[:min(len(sizes), 16)], ", ") +
			": windows are for hosts with the same number of ranks"
	case len(hosts) > most+1:
		return fmt.Sprintf("the ranks are on %d hosts; windows are for up to %d", len(hosts), most+1)
	}
	return ""
}

// neighbours returns the other ranks on the host of a rank, all others if there is one host.
func neighbours(hosts [][]int, rank, size int) []int {
	ranks := hostsOr(hosts, size)
	return slices.DeleteFunc(slices.Clone(ranks[hostOf(ranks, rank)]), func(peer int) bool { return peer == rank })
}

// hostsOr returns the hosts, or the one that has all ranks.
func hostsOr(hosts [][]int, size int) [][]int {
	if len(hosts) > 0 {
		return hosts
	}
	all := make([]int, size)
	for rank := range all {
		all[rank] = rank
	}
	return [][]int{all}
}

// railOf returns the ranks with the same place on other hosts as a rank, on hosts of equal size.
func railOf(hosts [][]int, rank int) (peers []int) {
	if len(hosts) < 2 {
		return nil
	}
	place := slices.Index(hosts[hostOf(hosts, rank)], rank)
	for _, ranks := range hosts {
		if ranks[place] != rank {
			peers = append(peers, ranks[place])
		}
	}
	return peers
}

func hostOf(hosts [][]int, rank int) int {
	return slices.IndexFunc(hosts, func(ranks []int) bool { return slices.Contains(ranks, rank) })
}
