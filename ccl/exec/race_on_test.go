//go:build race

package exec_test

// underRace reports that the race detector is on, which makes everything ten times slower.
const underRace = true
