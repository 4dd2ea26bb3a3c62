// Package faulty wraps fabrics for tests. It delays fragments, control messages and wake-ups,
// corrupts fragments, lends less space than there is or for a while none, and cuts links. Links may
// say that a peer is far away, or that fragments have not left yet. Each channel is delayed on its
// own, so fragments of one channel may overtake those of another.
//
// The fabrics of all sides of a test share a Network, so that a cut appears on both sides of a
// link, as with a broken wire. Faults act where fragments and control messages are received; those
// of space, of wake-ups and of what links say act where they are sent. Without faults a wrapped
// fabric keeps every guarantee of the inner one, zero allocations included; and it has the optional
// parts of the contract that the inner one has, and no other ones.
//
//	net := faulty.NewNetwork(
//		faulty.Fault{From: 1, To: 0, Channel: faulty.Any, Fragment: 3, Cut: true})
//	a := net.Wrap(innerA, doorbellA)
//	b := net.Wrap(innerB, doorbellB)
package faulty
