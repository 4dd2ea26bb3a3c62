package rdma

import (
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// events handles the asynchronous events that have come. What fails is left; the tcp links go on.
func (a *adapter) events() {
	for {
		e, ok, err := a.context.Event()
		if err != nil {
			a.mu.Lock()
			a.fail(fault.Wrap(fault.System, err, "%s: no more events", a.place))
			a.mu.Unlock()
			return
		}
		if !ok {
			return
		}
		a.event(e)
	}
}

func (a *adapter) event(e verbs.Event) {
	why := fault.New(fault.System, "%s: %v", a.place, e.Kind)
	switch e.Kind {
	case verbs.PairFatal, verbs.PairRequest, verbs.PairAccess:
		if way := (*a.connections.Load())[e.Pair]; way != nil {
			way.fail(why)
		}
	case verbs.CompletionsFailed, verbs.ReceivesFailed, verbs.DeviceFatal:
		a.mu.Lock()
		a.fail(why)
		a.mu.Unlock()
	case verbs.PortError, verbs.GIDChange, verbs.LIDChange:
		if e.Port != a.place.Port.Number {
			return
		}
		for _, way := range *a.connections.Load() {
			way.fail(why)
		}
	default:
		a.f.opts.Info("rdma: %s: %v", a.place, e.Kind)
	}
}
