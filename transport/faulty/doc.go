// Package faulty wraps fabrics, for tests: it delays fragments, corrupts them, and cuts links.
//
// A Network is shared by the fabrics of all sides of a test, so that a cut is noticed on both sides of a link, as a
// broken wire would be. Faults act where fragments are received. Without faults a wrapped fabric keeps every promise of
// the one it wraps, zero allocations included.
//
//	net := faulty.NewNetwork(faulty.Fault{From: 1, To: 0, Channel: faulty.Any, Fragment: 3, Cut: true})
//	a := net.Wrap(innerA, bellA)
//	b := net.Wrap(innerB, bellB)
package faulty
