package exports

// #include "guard.h"
import "C"

import "github.com/goccl/goccl/pgbackend"

// Called as sockets are opened and closed, which is rare.
func init() {
	pgbackend.TrackSockets(func(fd int, open bool) { C.goccl_track(C.int(fd), C.int(truth(open))) })
}
