package mem

import (
	"errors"
	"slices"
)

// Watch gives a device access to all allocations, those that are there and those to come, each
// until it is freed. The device may refuse some: they are allocations like any other, and nobody is
// told, so a device that owes an explanation gives it itself. It is asked to end the access to
// those, too.
func (a *Arena) Watch(device Pinner) {
	a.watch.Lock()
	defer a.watch.Unlock()
	a.watchers = append(a.watchers, device)
	for at, bytes := range a.shown {
		_ = device.Pin(a.memory[at : at+bytes]) // it may refuse
	}
}

// Unwatch ends Watch for a device that has given up its access, or does so now.
func (a *Arena) Unwatch(device Pinner) {
	a.watch.Lock()
	defer a.watch.Unlock()
	a.watchers = slices.DeleteFunc(a.watchers, func(d Pinner) bool { return d == device })
}

// show lets the watchers know of an allocation.
func (a *Arena) show(at, bytes int) {
	a.watch.Lock()
	defer a.watch.Unlock()
	a.shown[at] = bytes
	for _, device := range a.watchers {
		_ = device.Pin(a.memory[at : at+bytes]) // it may refuse
	}
}

// conceal ends the access of the watchers to the allocation at an offset. After an error it is
// still theirs, and the next call asks again.
func (a *Arena) conceal(at int) error {
	a.watch.Lock()
	defer a.watch.Unlock()
	bytes, ok := a.shown[at]
	if !ok {
		return nil
	}
	var errs []error
	for _, device := range a.watchers {
		errs = append(errs, device.Unpin(a.memory[at:at+bytes]))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	delete(a.shown, at)
	return nil
}
