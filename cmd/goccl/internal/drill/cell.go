package drill

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
)

// The roads between ranks.
const (
	roadShm   = "shm"
	roadTCP   = "tcp"
	roadHosts = "hosts" // shared memory within two hosts, TCP between them
)

var roads = []string{roadShm, roadTCP, roadHosts}

// cell is one case of the drill.
type cell struct {
	Fault string           `json:"fault"`
	Coll  dtype.Collective `json:"coll"`
	Road  string           `json:"road"`
	Ranks int              `json:"ranks"`
}

func (c cell) String() string {
	return fmt.Sprintf("%s × %s × %s × %d ranks", c.Fault, collName(c.Coll), c.Road, c.Ranks)
}

func collName(coll dtype.Collective) string {
	if coll == dtype.Send {
		return "send_recv"
	}
	return coll.String()
}

// culprit returns the rank that has the fault. All ranks get their turn, also the root.
func (c cell) culprit() int { return (2*int(c.Coll) + faultIndex(c.Fault) + c.Ranks/3) % c.Ranks }
func (c cell) root() int    { return int(c.Coll) % c.Ranks }

// culprits returns all ranks that have the fault, as far from each other as can be.
func (c cell) culprits() (all []int) {
	n := max(1, faultNamed(c.Fault).deaths)
	for i := range n {
		all = append(all, (c.culprit()+i*c.Ranks/n)%c.Ranks)
	}
	slices.Sort(all)
	return all
}

// host returns where a rank runs.
func (c cell) host(rank int) int {
	if faultNamed(c.Fault).lone {
		return min(rank, 1)
	}
	return 2 * rank / c.Ranks
}

// elements returns the length of the vector. The groups of 3 ranks have short ones, which travel at
// once; those of 6 have long ones, which run in pieces.
func (c cell) elements() int64 {
	if c.Ranks > 3 {
		return int64(c.Ranks) << 15
	}
	return int64(c.Ranks) * 300
}

// outcome is what came of a cell.
type outcome struct {
	Name       string          `json:"name"` // of the cell
	Cell       cell            `json:"cell"`
	Culprits   []int           `json:"culprits"`
	Passed     bool            `json:"passed"`
	Stalls     []time.Duration `json:"stalls,omitempty"` // of the machine, in earlier runs of the cell
	Slowest    time.Duration   `json:"slowest"`          // of the ranks that had to notice
	Took       time.Duration   `json:"took"`
	Complaints []string        `json:"complaints,omitempty"`
	Ranks      []*testimony    `json:"ranks"`
}
