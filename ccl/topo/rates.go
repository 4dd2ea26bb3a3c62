package topo

import "fmt"

// Rates are what the cores and the memory of a machine do, as measured; 0 if nobody has.
type Rates struct {
	One      float64 `json:"one_core"`  // bytes a second that one core copies
	All      float64 `json:"all_cores"` // that all cores of this process copy at the same time
	Handover float64 `json:"handover"`  // seconds until a core sees what another one has written
}

// Known reports whether r is what a machine can do: a file, and what another rank says, may be
// anything.
func (r Rates) Known() bool {
	const most, longest = 1e15, 1
	return r.One >= 1 && r.One <= r.All && r.All <= most && r.Handover >= 0 && r.Handover <= longest
}

// String describes rates to people.
func (r Rates) String() string {
	if !r.Known() {
		return "not measured"
	}
	text := fmt.Sprintf("one core copies %.3g GB/s, all %.3g", r.One/1e9, r.All/1e9)
	if r.Handover > 0 {
		text += fmt.Sprintf(", a core sees a write of another after %.0f ns", r.Handover*1e9)
	}
	return text
}

// slower returns rates that are as slow as the slower of two in each of them.
func slower(a, b *Rates) *Rates {
	return &Rates{min(a.One, b.One), min(a.All, b.All), max(a.Handover, b.Handover)}
}
