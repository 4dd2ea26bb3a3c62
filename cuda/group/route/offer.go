package route

import (
	"encoding/binary"
	"strings"
)

// Offer is what the ranks tell each other when they join.
type Offer struct {
	Facts
	Why [Kinds]string // why it does not work
}

// Facts are what has the same length in all offers.
type Facts struct {
	Has        bool // it has a Window
	Interprets byte // what the user wants of it: InterpretAuto
	Slot       uint64
	Graphs     uint64
	Device     [16]byte
	DeviceSlot uint64       // of its window in the memory of its device
	Arena      uint64       // bytes of its Arena; 0 for none
	Works      [Kinds]bool  // as far as this rank knows
	Reads      [Kinds]Reads // of the slowest peer
	Word       float64      // see Route
}

const whyBytes = 103

// OfferBytes is the length of an offer.
var OfferBytes = binary.Size(Facts{}) + int(Kinds)*(1+whyBytes)

// Encode writes an offer into OfferBytes bytes.
func (o *Offer) Encode(b []byte) {
	at, _ := binary.Encode(b, binary.LittleEndian, &o.Facts)
	for _, why := range o.Why {
		b[at] = byte(copy(b[at+1:at+1+whyBytes], why))
		at += 1 + whyBytes
	}
}

// Decode reads one.
func Decode(b []byte) (o Offer) {
	at, _ := binary.Decode(b, binary.LittleEndian, &o.Facts)
	for k := range o.Why {
		text := b[at+1:]
		o.Why[k] = strings.ToValidUTF8(string(text[:min(int(b[at]), whyBytes)]), "")
		at += 1 + whyBytes
	}
	return o
}
