package group

import (
	"fmt"

	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
)

// Unfit says why collectives do not go over windows in a group; "" if they may.
func Unfit(on *topo.Group) string {
	hosts := len(on.Hosts())
	if hosts == 1 {
		return ""
	}
	switch most := (plan.MaxLanes - 1) / 2; {
	case !on.Levels():
		return "the ranks share no memory: each is on a host of its own, or is linked by TCP"
	case !on.Even():
		return "the ranks are on hosts of " + on.Sizes() + ": windows are for hosts with the same number of ranks"
	case hosts > most+1:
		return fmt.Sprintf("the ranks are on %d hosts; windows are for up to %d", hosts, most+1)
	}
	return ""
}
