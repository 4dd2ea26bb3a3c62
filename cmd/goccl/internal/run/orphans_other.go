//go:build !linux

package run

import "os/exec"

// reaper is for Linux, where a process may be process 1 of a container.
type reaper struct{}

func newReaper() *reaper                  { return nil }
func (*reaper) start(cmd *exec.Cmd) error { return cmd.Start() }
func (*reaper) ended(*exec.Cmd)           {}
