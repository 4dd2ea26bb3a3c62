package pgbackend

// Tags of the backend's own messages. Users' tags are non-negative ints, so the upper half is free.
// The number of the operation is part of the tag, so that a message which a late rank sends for a
// failed operation is never received by the next one.
const (
	ownTags    = 0x80000000
	sparseTags = 0x40000000
	tagNumbers = 0x1fffffff
)

// monitoredTag returns the tag of a message of a monitored barrier: part 0 is an arrival, part 1
// the verdict.
func monitoredTag(number uint64, part uint32) uint32 {
	return ownTags | uint32(number)&tagNumbers<<1 | part
}

// sparseTag returns the tag of a message of a sparse all_reduce: part 0 is indices, part 1 values.
func sparseTag(number uint64, part uint32) uint32 { return sparseTags | monitoredTag(number, part) }
