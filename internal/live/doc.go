// Package live is how a process tells other processes of its user what its groups are doing, for
// goccl top.
//
// A process serves snapshots at an abstract unix socket that is named by its number: a connection
// gets one, as JSON, and ends. No thread waits at the socket, and nothing is counted or collected
// while nobody asks. Whoever connects can neither hold the process up nor make it use memory: users
// other than its own (and root) get nothing, there are few connections at a time, and each ends
// soon. Linux only.
package live

import "time"

// Process is what the groups of a process are doing.
type Process struct {
	Version string  `json:"version"` // of goccl
	Pid     int     `json:"pid"`
	Groups  []Group `json:"groups"`
	More    int     `json:"more,omitempty"` // groups that are left out
}

// Group is one rank of one group. Ranks are ranks of the group. Times are in seconds.
type Group struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Rank        int     `json:"rank"`
	Size        int     `json:"size"`
	JobRank     int     `json:"job_rank"` // this rank's number in the whole job
	Routes      string  `json:"routes"`   // "3 by shm, 4 by tcp"
	Seq         uint64  `json:"seq"`      // collectives called
	Messages    uint64  `json:"messages"` // sends and receives called
	Op          string  `json:"op,omitempty"`
	Busy        bool    `json:"busy,omitempty"`  // it is in a call; Op may be empty nevertheless
	For         float64 `json:"for,omitempty"`   // how long it is in Op, or else in no call; 0 if unknown
	Waits       []int   `json:"waits,omitempty"` // for these ranks
	Pace        *Pace   `json:"pace,omitempty"`  // nil without a record
	Lost        []int   `json:"lost,omitempty"`
	Failure     string  `json:"failure,omitempty"`
}

// Pace is what went on lately, a second.
type Pace struct {
	Operations float64 `json:"operations"`
	Bytes      float64 `json:"bytes"` // of input or output, whichever is more
}

const (
	mostGroups  = 256                    // of a snapshot
	mostAsking  = 8                      // connections at a time
	answerSpan  = 2 * time.Second        // of a server, see Server.span
	strangeSpan = 10 * time.Millisecond  // between two connections that get nothing
	trouble     = 100 * time.Millisecond // until the next attempt where no connection can be accepted
	askSpan     = 3 * time.Second        // for an answer to come
	mostAnswer  = 4 << 20                // bytes
)

// Fit leaves out groups of which there are too many for a snapshot.
func (p *Process) Fit() {
	if more := len(p.Groups) - mostGroups; more > 0 {
		p.Groups, p.More = p.Groups[:mostGroups], more
	}
}
