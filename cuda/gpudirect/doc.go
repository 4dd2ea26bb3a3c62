// Package gpudirect has RDMA adapters read the memory of devices, so that what is sent from there
// needs no copy in memory of the host: GPUDirect RDMA.
//
// # Ways
//
// A Table is about one device and one adapter. It registers memory with the adapter by a dma-buf of
// the GPU driver, or where that is refused by its address, which a module of the driver
// (nvidia_peermem) has the kernel find. Where both are refused, the memory has to be staged, and
// the error says what was tried and why it was refused.
//
// # Registrations
//
// A whole allocation is registered: a dma-buf is of one, and what else is sent from it finds it
// registered. Where it begins within a page, its dma-buf begins with the page, and the region at
// the offset in it. In pieces of writes, memory has the addresses that it has for the device.
//
// Registrations and refusals are kept by the ID of the allocation, which each Use asks for. So an
// address that was freed and allocated again is another allocation, and its memory is registered
// anew; the old registration ends then, or with its last use, and has no other. A Table keeps 256
// of them. The one that was used longest ago makes room, if it is not in use.
//
// # Whoever frees memory
//
// calls End before, and does not free it after an error: a write may still read it. Of memory that
// others allocate and free (torch), nobody tells. It is theirs to keep while it is sent, as with
// any stream, and the ID tells the rest.
//
// # What uses it
//
// goccl doctor tries whether an adapter reads the memory of a device. Nothing is sent from there
// yet. Package transport/rdma would send it in place as other memory (fabric_test.go does so). What
// is missing is above and below: package cuda/group stages messages, and package exec copies all
// messages into slots; and what tcp sends when a connection breaks, the processor would have to
// read. It has not run on a GPU beside an adapter: whether memory that is mapped in parts, as
// torch's expandable segments, gets another ID with each part, has to be seen there.
package gpudirect
