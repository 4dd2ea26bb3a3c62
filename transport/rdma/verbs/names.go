package verbs

import "fmt"

// statuses names them as libibverbs does.
var statuses = [...]string{"success", "local length error", "local QP operation error",
	"local EE context operation error", "local protection error", "work request flushed",
	"memory window bind error", "bad response", "local access error", "remote invalid request",
	"remote access error", "remote operation error", "transport retries exceeded",
	"receiver not ready, retries exceeded", "local RDD violation", "remote invalid RD request",
	"remote aborted", "invalid EE context number", "invalid EE context state", "fatal error",
	"response timeout", "general error"}

// String returns the name and the number.
func (s Status) String() string {
	if int(s) < len(statuses) {
		return fmt.Sprintf("%s (status %d)", statuses[s], uint32(s))
	}
	return fmt.Sprintf("unknown error (status %d)", uint32(s))
}

var events = [...]string{"completion queue error", "QP fatal error", "QP request error", "QP access error",
	"communication established", "send queue drained", "path migrated", "path migration failed", "device fatal error",
	"port active", "port error", "LID change", "P_Key change", "subnet manager change", "shared receive queue error",
	"shared receive queue limit", "last receive of the QP reached", "client reregistration", "GID change"}

// String returns the name and the number.
func (k EventKind) String() string {
	if k >= 0 && int(k) < len(events) {
		return fmt.Sprintf("%s (event %d)", events[k], int(k))
	}
	return fmt.Sprintf("unknown event (%d)", int(k))
}
