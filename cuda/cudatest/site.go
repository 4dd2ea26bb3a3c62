package cudatest

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// site is a place in the program that called the driver.
type site [12]uintptr

// here returns the place from which the driver was called.
func here() (s site) {
	runtime.Callers(2, s[:])
	return s
}

const ownFunctions = "github.com/goccl/goccl/cuda/cudatest."

// String returns the folder, the file and the line of the first function outside of this package.
func (s site) String() string {
	frames := runtime.CallersFrames(s[:])
	for {
		frame, more := frames.Next()
		if frame.Function != "" && !strings.HasPrefix(frame.Function, ownFunctions) {
			folder, file := path.Split(frame.File)
			return fmt.Sprintf("%s/%s:%d", path.Base(folder), file, frame.Line)
		}
		if !more {
			return "somewhere"
		}
	}
}
