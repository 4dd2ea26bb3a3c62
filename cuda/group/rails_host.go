package group

import (
	"fmt"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// head returns how many bytes of a slot come before the data of a message.
func (o *Op) head() int {
	if o.of == nil {
		return 0
	}
	return headBytes
}

// addHead puts the head in front of the data of p.call, a piece of a message of a program.
func (p *pipeline) addHead(o *Op, at int) {
	if o.of == nil {
		return
	}
	if len(p.in) == 0 {
		p.out[0].Count += headBytes
		return
	}
	p.in[0].Count += headBytes
	*p.print(at) = exec.Print(&o.of.call, o.of.seq)
}

// withholds reports whether a message must not leave: a rank of this host has failed, and may have
// let the device go on before what it sends was there. This rank is about to be told why.
func (p *pipeline) withholds(o *Op) bool {
	return o.of != nil && o.call.Coll == dtype.Send && p.failed()
}

// print returns the print at the begin of a slot.
func (p *pipeline) print(at int) *transport.Meta {
	return (*transport.Meta)(unsafe.Pointer(unsafe.SliceData(p.st.memory.Host()[at : at+headBytes])))
}

// compare compares the call of a message that has come with this rank's. The engine of the messages
// has compared their lengths.
func (p *pipeline) compare(o *Op, piece int) error {
	if o.of == nil || o.call.Coll != dtype.Recv {
		return nil
	}
	own, other := exec.Print(&o.of.call, o.of.seq), *p.print(p.slot(o.first + uint64(piece)).at)
	if own == other {
		return nil
	}
	return fault.Peer(fault.Mismatch, o.call.Root, "rank %d called %s, and rank %d called %s", p.g.rank,
		exec.DescribePrint(own), o.call.Root, exec.DescribePrint(other))
}

// ofMessage says in what is told of a message of a program which one it is.
func (o *Op) ofMessage(text string) string {
	way := "to"
	if o.call.Coll == dtype.Recv {
		way = "from"
	}
	return fmt.Sprintf("a message %s rank %d: %s", way, o.call.Root, text)
}

// awaits returns a rank on another host whose message a call waits for, or that does not take one,
// or -1.
func (r *rails) awaits(o *Op) int {
	for _, lanes := range [2][]*pipeline{r.from, r.to} {
		for peer, p := range lanes {
			if p != nil && p.inFlight > 0 && p.flights[p.tail].of.of == o {
				return peer
			}
		}
	}
	return -1
}
