package tcp

import (
	"strings"
	"time"
)

// SystemCongestion is the Options.Congestion that leaves connections the system's congestion
// control.
const SystemCongestion = "system"

// ShortPath is the round trip below which connections are not paced.
const ShortPath = time.Millisecond

// congestions returns the congestion controls that a socket is to be given, to be tried in this
// order; none if it keeps what it has. choice is Options.Congestion, has what the socket has, and
// trip its shortest round trip, 0 if that is not known.
func congestions(choice, has string, trip time.Duration) []string {
	switch {
	case choice == SystemCongestion || choice == has:
		return nil
	case choice != "":
		return []string{choice}
	case paces(has) && trip > 0 && trip < ShortPath:
		return []string{"cubic", "reno"} // every user may have reno
	}
	return nil
}

// paces reports whether a congestion control sends at the rate that it has measured.
func paces(name string) bool { return strings.HasPrefix(name, "bbr") }

// giveCongestion gives a socket the first of some congestion controls that the system allows. It
// returns "" and an error if that is none of them.
func giveCongestion(fd int, names []string) (given string, err error) {
	for _, name := range names {
		if err = setCongestion(fd, name); err == nil {
			return name, nil
		}
	}
	return "", err
}

// unpace gives a socket the congestion control that it is to have, and reports whether it is paced
// since its path seems long. A path may be short and busy, so that is asked again.
func (f *Fabric) unpace(fd int) (paced bool) {
	if f.opts.Congestion == SystemCongestion {
		return false
	}
	var info pathInfo
	has := congestionOf(fd)
	trip, _ := f.trips(fd, &info)
	names := congestions(f.opts.Congestion, has, trip)
	given, _ := giveCongestion(fd, names) // none where a route insists on its own (congctl lock)
	if given != "" && f.opts.Congestion == "" {
		f.unpaced.Do(func() {
			f.opts.Info("tcp: connections whose round trip is below %v have %s, and not the system's %s; see "+
				"GOCCL_SOCKET_CONGESTION", ShortPath, given, has)
		})
	}
	return len(names) == 0 && f.opts.Congestion == "" && paces(has)
}

// unpace looks again at a socket that is paced.
func (k *socket) unpace() {
	c := k.conn
	if !k.paced.Load() || !c.reading.CompareAndSwap(false, true) {
		return
	}
	if !c.down.Load() {
		k.paced.Store(c.f.unpace(k.fd))
	}
	c.reading.Store(false)
}
