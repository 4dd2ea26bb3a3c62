//go:build !linux

package main

import "errors"

// drillable says why the drill cannot run here.
var drillable = errors.New("the drill needs Linux: it looks into /proc, and makes hosts of network namespaces")

func descriptors() map[string]bool                  { return nil }
func startPolling() error                           { return drillable }
func confine(string) error                          { return drillable }
func startHolder(map[int]bool) (pid int, err error) { return 0, drillable }
func adopt() error                                  { return drillable }
func endHolder(int)                                 {}
func children() []string                            { return nil }
func mountProc() error                              { return drillable }
