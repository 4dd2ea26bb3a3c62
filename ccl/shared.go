package ccl

import "github.com/goccl/goccl/transport"

// Shared returns the Config.Note of another rank, and copies of the descriptors in its
// Config.Share, in their order. The first call for a rank hands the descriptors to the caller, who
// closes them; later calls return the note only. Those that nobody has asked for are closed with
// the group, and close-on-exec like the others. A rank that shares no memory with this one, because
// it is on another host or GOCCL_TRANSPORT=tcp is set, brings nothing.
//
// The descriptors may be of anything, and the note may say anything: both come from the other rank
// as they are.
func (c *Communicator) Shared(rank int) (note []byte, descriptors []int) {
	if rank < 0 || rank >= len(c.links) {
		return nil, nil
	}
	link, ok := c.links[rank].(transport.Lender)
	if !ok {
		return nil, nil
	}
	return link.Shared()
}
