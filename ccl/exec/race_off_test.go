//go:build !race

package exec_test

const underRace = false
