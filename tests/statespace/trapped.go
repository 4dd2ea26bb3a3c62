// Package statespace has what searches of models share.
package statespace

import "slices"

// Trapped returns the first of the states 0 to states-1 from which no goal can be reached, or -1.
// An edge leads to its first state, from its second one. The goals are used up.
func Trapped(states int, edges [][2]int32, goals []int32) int32 {
	first := make([]int32, states+1) // by state: index in sorted of the first edge that leads there
	for _, e := range edges {
		first[e[0]+1]++
	}
	for i := range states {
		first[i+1] += first[i]
	}
	sorted, at := make([]int32, len(edges)), slices.Clone(first)
	for _, e := range edges {
		sorted[at[e[0]]] = e[1]
		at[e[0]]++
	}
	good := make([]bool, states)
	for _, n := range goals {
		good[n] = true
	}
	for len(goals) > 0 {
		n := goals[len(goals)-1]
		goals = goals[:len(goals)-1]
		for _, from := range sorted[first[n]:first[n+1]] {
			if !good[from] {
				good[from] = true
				goals = append(goals, from)
			}
		}
	}
	return int32(slices.Index(good, false))
}
