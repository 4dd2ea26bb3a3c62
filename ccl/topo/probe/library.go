package probe

import (
	"runtime"

	"github.com/ebitengine/purego"

	"github.com/goccl/goccl/ccl/topo"
)

// library tries to open a shared library as the code that uses it would, at run time, and to find
// one of its functions.
func library(name string, sonames []string, symbol, hint string) topo.Finding {
	// The loader keeps the text of an error for the thread that caused it, so this goroutine must
	// not change threads before it has read the text.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var last error
	for _, soname := range sonames {
		handle, err := purego.Dlopen(soname, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			last = err
			continue
		}
		if _, err := purego.Dlsym(handle, symbol); err != nil {
			last = err
			continue
		}
		return topo.Finding{Name: name, State: topo.OK, Value: soname}
	}
	return topo.Finding{Name: name, State: topo.Missing, Value: last.Error(), Hint: hint}
}
