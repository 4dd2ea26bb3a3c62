package topo

// Finding is one thing that a machine offers or lacks.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Value string `json:"value"`          // what was found
	Hint  string `json:"hint,omitempty"` // what to do if it is missing, or the consequence
}

// State tells whether a Finding is good.
type State string

const (
	OK      State = "ok"
	Missing State = "missing" // something is slower, or does not work
	Info    State = "info"    // neither good nor bad
)
