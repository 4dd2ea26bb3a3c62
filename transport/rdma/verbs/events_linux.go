//go:build (amd64 || arm64) && !nordma

package verbs

import "syscall"

// Events implements Context.
func (c *context) Events() int { return c.events }

// Event implements Context.
func (c *context) Event() (Event, bool, error) {
	if err := c.begin(); err != nil {
		return Event{}, false, err
	}
	defer c.end()
	var event cEvent
	switch errno := c.getAsyncEvent(c.handle, &event); errno {
	case 0:
	case syscall.EAGAIN, syscall.EINTR:
		return Event{}, false, nil
	default:
		return Event{}, false, refused(errno, "events of %s", c.name)
	}
	found := event.event() // the pair is there until the event is acknowledged
	c.ackAsyncEvent(&event)
	return found, true, nil
}

func (e *cEvent) event() Event {
	found := Event{Kind: EventKind(e.kind)}
	switch {
	case ofPair(found.Kind):
		found.Pair = at[cPair](uintptr(e.element)).number
	case ofPort(found.Kind):
		found.Port = int(int32(e.element))
	}
	return found
}

// ofPair tells of what an event is by its number, in the order of enum ibv_event_type.
func ofPair(k EventKind) bool { return k >= PairFatal && k <= 7 || k == 16 }

func ofPort(k EventKind) bool { return k >= PortActive && k <= 13 || k == 17 || k == GIDChange }
