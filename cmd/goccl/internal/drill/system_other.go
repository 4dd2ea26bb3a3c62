//go:build !linux

package drill

import "errors"

// unsupported says why the drill cannot run here.
var unsupported = errors.New("the drill needs Linux: it looks into /proc, and makes hosts of network namespaces")

func descriptors() map[string]bool                  { return nil }
func startPolling() error                           { return unsupported }
func confine(string) error                          { return unsupported }
func startHolder(map[int]bool) (pid int, err error) { return 0, unsupported }
func adopt() error                                  { return unsupported }
func endHolder(int)                                 {}
func children() []string                            { return nil }
func mountProc() error                              { return unsupported }
