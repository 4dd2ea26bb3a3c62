package p2p

import "unsafe"

// bytes is the memory of a request.
func (r *Request) bytes() []byte { return unsafe.Slice((*byte)(r.Data), r.Bytes) }
