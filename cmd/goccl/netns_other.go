//go:build !linux

package main

import (
	"errors"
	"syscall"
)

const rankInterface, namespaceHint = "", ""

var errNoNamespaces = errors.New("--rate needs network namespaces, which only Linux has")

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func ownNetwork() (*syscall.SysProcAttr, error) { return nil, errNoNamespaces }

func makeNetwork(int, string) error { return errNoNamespaces }

func inNamespace(int) []string { return nil }
