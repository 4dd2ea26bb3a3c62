//go:build !linux

package live

import (
	"runtime"

	"github.com/goccl/goccl/ccl/fault"
)

// Server answers those who ask. There is none here.
type Server struct{}

func absent() error {
	return fault.New(fault.NotSupported, "goccl top needs Linux; this is %s", runtime.GOOS)
}

// Serve returns an error with NotSupported.
func Serve(func() *Process, func(fd int, open bool)) (*Server, error) { return nil, absent() }

// Close does nothing.
func (s *Server) Close() error { return nil }

// Ask returns an error with NotSupported.
func Ask(int) (*Process, error) { return nil, absent() }

// Processes returns an error with NotSupported.
func Processes() ([]int, error) { return nil, absent() }

// Family returns an error with NotSupported.
func Family(int) ([]int, error) { return nil, absent() }
