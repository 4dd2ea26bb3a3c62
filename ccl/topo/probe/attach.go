package probe

import (
	"fmt"

	"github.com/goccl/goccl/ccl/topo"
)

// attachFinding rates the result of a trial and Yama's ptrace scope ("" without Yama). Under scope
// 1 a child may always be read, but a sibling rank may not.
func attachFinding(whose string, err error, scope string) topo.Finding {
	found := topo.Finding{Name: "cross-memory attach", State: topo.OK, Value: "process_vm_readv reads " + whose}
	if err != nil {
		found.State, found.Value = topo.Missing, fmt.Sprintf("process_vm_readv of %s: %v", whose, err)
		found.Hint = "large messages go through shared windows; allow it by a seccomp profile that lets it through, or by CAP_SYS_PTRACE"
	}
	if scope != "" {
		found.Value += ", Yama's ptrace_scope is " + scope
	}
	switch {
	case err != nil || scope == "" || scope == "0":
	case scope == "1":
		found.State = topo.Info
		found.Hint = "only descendants may be read: ranks must allow each other by prctl(PR_SET_PTRACER), or sysctl kernel.yama.ptrace_scope=0"
	default:
		found.State = topo.Missing
		found.Hint = "only processes with CAP_SYS_PTRACE may read others: sysctl kernel.yama.ptrace_scope=0"
	}
	return found
}
