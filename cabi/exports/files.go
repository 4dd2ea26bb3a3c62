package exports

// #include "guard.h"
import "C"

import _ "os" // its init, which raises the limit, runs before the one here

func init() { C.goccl_restore_files() }
