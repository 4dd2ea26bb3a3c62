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
	case verbs.PortActive, verbs.PortError, verbs.GIDChange, verbs.LIDChange:
		if e.Port != a.place.Port.Number {
			return
		}
		a.stale.Store(true)
		if e.Kind == verbs.PortActive {
			a.f.opts.Info("rdma: %s: %v", a.place, e.Kind)
		} else {
			for _, way := range *a.connections.Load() {
				way.fail(why)
			}
		}
		if e.Kind != verbs.PortError {
			a.f.manager.do(func() { a.hasten(why) })
		}
	default:
		a.f.opts.Info("rdma: %s: %v", a.place, e.Kind)
	}
}

// hasten has all connections by a port that has changed made anew: also those that have failed long
// ago, or are failing now, or were being made while it changed.
func (a *adapter) hasten(why error) {
	if a.failed.Load() {
		return
	}
	if a.refresh() == nil {
		for _, way := range *a.connections.Load() {
			if way.gid != a.gid || way.lid != a.port.LID {
				way.fail(why)
			}
		}
	}
	for _, p := range a.f.all() {
		for _, t := range p.paths() {
			if t.a == a {
				t.advance()
				t.hasten()
			}
		}
	}
}
