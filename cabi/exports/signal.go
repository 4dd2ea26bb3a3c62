package exports

// #include "goccl.h"
// #include "guard.h"
import "C"

import (
	"os"
	"syscall"

	"github.com/goccl/goccl/internal/signals"
	"github.com/goccl/goccl/pgbackend"
)

func init() { signals.Use(watchSignal) }

// bell is the end of the pipe that the handler writes to. It stays open as long as the process
// lives.
var bell *os.File

// watchSignal has told called for each signal; it reports false if the program handles or ignores
// it.
func watchSignal(number syscall.Signal, told func()) (bool, error) {
	r, w, err := os.Pipe() // neither end blocks, nor survives an exec
	if err != nil {
		return false, err
	}
	installed := false
	raw, err := w.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { installed = C.goccl_watch_signal(C.int(number), C.int(fd)) != 0 })
	}
	if !installed {
		r.Close()
		w.Close()
		return false, err
	}
	bell = w
	go func() {
		for buffer := make([]byte, 64); ; told() { // signals that come meanwhile count as one
			if _, err := r.Read(buffer); err != nil {
				return
			}
		}
	}()
	return true, nil
}

//export goccl_go_group_record_to
func goccl_go_group_record_to(group C.goccl_group, path *C.char, record *C.goccl_error) C.int {
	return onGroup(group, record, func(g *pgbackend.Group) error { return g.RecordTo(C.GoString(path)) })
}
