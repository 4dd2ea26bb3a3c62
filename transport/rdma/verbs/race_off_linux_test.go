//go:build !race

package verbs

const UnderRace = false
