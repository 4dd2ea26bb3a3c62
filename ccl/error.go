package ccl

import "github.com/goccl/goccl/ccl/fault"

// Error is the error of all packages of this module: class, operation, group, rank, text.
type Error = fault.Error

// Classes of errors, for errors.Is.
const (
	Invalid      = fault.Invalid
	NotSupported = fault.NotSupported
	Timeout      = fault.Timeout
	PeerLost     = fault.PeerLost
	PeerLeft     = fault.PeerLeft
	Mismatch     = fault.Mismatch
	Aborted      = fault.Aborted
	Closed       = fault.Closed
)
