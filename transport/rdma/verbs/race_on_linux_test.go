//go:build race

package verbs

// UnderRace says that the race detector has pools forget, those of purego too: calls then allocate.
const UnderRace = true
