package topo

// Finding is one thing that a machine offers or lacks.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Value string `json:"value"`          // what there is
	Hint  string `json:"hint,omitempty"` // what to do, or what follows, where it is missing
}

// State says whether a Finding is good.
type State string

const (
	OK      State = "ok"
	Missing State = "missing" // something goes slower, or not at all
	Info    State = "info"    // neither good nor bad
)
