package route

import (
	"encoding/binary"
	"math"
	"strings"
)

// Offer is what the ranks tell each other when they join.
type Offer struct {
	Has        bool // it has a Window
	Slot       uint64
	Graphs     uint64
	Interprets byte // what the user wants of it: InterpretAuto
	Device     [16]byte
	DeviceSlot uint64        // of its window in the memory of its device
	Arena      uint64        // bytes of its Arena; 0 for none
	Works      [Kinds]bool   // as far as this rank knows
	Reads      [Kinds]Reads  // of the slowest peer
	Word       float64       // see Route
	Why        [Kinds]string // why it does not work
}

const (
	whyBytes  = 103
	whyOffset = 96
	// OfferBytes is the length of an offer.
	OfferBytes = whyOffset + int(Kinds)*(whyBytes+1)
)

// Encode writes an offer into OfferBytes bytes.
func (o *Offer) Encode(b []byte) {
	flag := func(at int, is bool) {
		if is {
			b[at] = 1
		}
	}
	flag(0, o.Has)
	b[3] = o.Interprets
	binary.LittleEndian.PutUint64(b[8:], o.Slot)
	copy(b[16:], o.Device[:])
	binary.LittleEndian.PutUint64(b[48:], o.Graphs)
	binary.LittleEndian.PutUint64(b[56:], o.Arena)
	binary.LittleEndian.PutUint64(b[88:], o.DeviceSlot)
	binary.LittleEndian.PutUint64(b[80:], math.Float64bits(o.Word))
	for k := range Kinds {
		flag(1+int(k), o.Works[k])
		binary.LittleEndian.PutUint64(b[32+8*k:], math.Float64bits(o.Reads[k].Rate))
		binary.LittleEndian.PutUint64(b[64+8*k:], math.Float64bits(o.Reads[k].Latency))
		at := whyOffset + int(k)*(whyBytes+1)
		b[at] = byte(copy(b[at+1:at+1+whyBytes], o.Why[k]))
	}
}

// Decode reads one.
func Decode(b []byte) (o Offer) {
	o.Has, o.Slot, o.Device = b[0] == 1, binary.LittleEndian.Uint64(b[8:]), [16]byte(b[16:])
	o.Graphs, o.Arena = binary.LittleEndian.Uint64(b[48:]), binary.LittleEndian.Uint64(b[56:])
	o.DeviceSlot = binary.LittleEndian.Uint64(b[88:])
	o.Interprets, o.Word = b[3], math.Float64frombits(binary.LittleEndian.Uint64(b[80:]))
	for k := range Kinds {
		o.Works[k] = b[1+k] == 1
		o.Reads[k].Rate = math.Float64frombits(binary.LittleEndian.Uint64(b[32+8*k:]))
		o.Reads[k].Latency = math.Float64frombits(binary.LittleEndian.Uint64(b[64+8*k:]))
		text := b[whyOffset+int(k)*(whyBytes+1):]
		o.Why[k] = strings.ToValidUTF8(string(text[1:1+min(int(text[0]), whyBytes)]), "")
	}
	return o
}
