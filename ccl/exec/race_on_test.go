//go:build race

package exec_test

// underRace: the race detector makes everything ten times slower.
const underRace = true
