package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goccl/goccl/ccl/fault"
)

// Error is what a call to the driver returned.
type Error struct {
	Call string // "cuMemcpyAsync"
	Code int    // CUresult
	Name string // "CUDA_ERROR_ILLEGAL_ADDRESS"
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code) }

// Results of calls (CUresult).
var (
	// unsupported are what a driver returns for what it, the device or the machine does not have.
	unsupported = []int{
		34,  // CUDA_ERROR_STUB_LIBRARY
		100, // CUDA_ERROR_NO_DEVICE
		209, // CUDA_ERROR_NO_BINARY_FOR_GPU
		221, // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
		222, // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
		500, // CUDA_ERROR_NOT_FOUND
		801, // CUDA_ERROR_NOT_SUPPORTED
		803, // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
		804, // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
	}
	// sticky are what all later calls of the process return, too: the context is lost.
	sticky = []int{
		214, // CUDA_ERROR_ECC_UNCORRECTABLE
		220, // CUDA_ERROR_NVLINK_UNCORRECTABLE
		700, // CUDA_ERROR_ILLEGAL_ADDRESS
		702, // CUDA_ERROR_LAUNCH_TIMEOUT
		710, // CUDA_ERROR_ASSERT
		714, // CUDA_ERROR_HARDWARE_STACK_ERROR
		715, // CUDA_ERROR_ILLEGAL_INSTRUCTION
		716, // CUDA_ERROR_MISALIGNED_ADDRESS
		717, // CUDA_ERROR_INVALID_ADDRESS_SPACE
		718, // CUDA_ERROR_INVALID_PC
		719, // CUDA_ERROR_LAUNCH_FAILED
	}
)

// Sticky reports whether the context is lost, for everybody in the process.
func (e *Error) Sticky() bool { return slices.Contains(sticky, e.Code) }

// Failed returns the error of a call that returned code, whose name is name.
func Failed(call string, code int, name string) *fault.Error {
	class := fault.System
	if slices.Contains(unsupported, code) {
		class = fault.NotSupported
	}
	return fault.Wrap(class, &Error{call, code, name}, "the GPU driver refused")
}

// Lost reports whether err says that the context is lost.
func Lost(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Sticky()
}
