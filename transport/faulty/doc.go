// Package faulty wraps fabrics, for tests: it delays fragments and wake-ups, corrupts fragments,
// lends less space than there is or for a while none, and cuts links. Channels are delayed each for
// itself, so what travels in one overtakes what travels in another.
//
// A Network is shared by the fabrics of all sides of a test, so that a cut is noticed on both sides
// of a link, as a broken wire would be. Faults act where fragments are received, those of space and
// of wake-ups where they are sent. Without faults a wrapped fabric keeps every promise of the one
// it wraps, zero allocations included.
//
//	net := faulty.NewNetwork(faulty.Fault{From: 1, To: 0, Channel: faulty.Any, Fragment: 3, Cut: true})
//	a := net.Wrap(innerA, bellA)
//	b := net.Wrap(innerB, bellB)
package faulty
