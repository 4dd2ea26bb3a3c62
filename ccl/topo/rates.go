package topo

// Rates are what the cores and the memory of a machine do, as measured; 0 if nobody has.
type Rates struct {
	One      float64 `json:"one_core"`  // bytes a second that one core copies
	All      float64 `json:"all_cores"` // that all cores of this process copy at the same time
	Handover float64 `json:"handover"`  // seconds until a core sees what another one has written
}
