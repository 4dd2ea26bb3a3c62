//go:build race

package driver

// underRace reports that the race detector is on.
const underRace = true
