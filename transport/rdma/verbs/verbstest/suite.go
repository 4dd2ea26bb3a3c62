package verbstest

import (
	"testing"

	"github.com/goccl/goccl/transport/rdma/verbs"
)

// Lacks lists what an implementation does not guarantee.
type Lacks struct {
	Allocates bool // Post and Poll allocate memory, in what calls the system; the test is skipped
}

// Run tests implementations against the contract. What make returns are two processes that reach
// each other, or twice the same one. Each needs one adapter with an active port.
func Run(t *testing.T, make func(t *testing.T) (a, b verbs.Library), l Lacks) {
	for _, tt := range []struct {
		name string
		skip bool
		run  func(*testing.T, *bench)
	}{
		{"Write", false, testWrite},
		{"Immediate", false, testImmediate},
		{"Inline", false, testInline},
		{"TwoPieces", false, testTwoPieces},
		{"NoBytes", false, testNoBytes},
		{"Order", false, testOrder},
		{"Big", false, testBig},
		{"Signals", false, testSignals},
		{"Room", false, testRoom},
		{"BothWays", false, testBothWays},
		{"Traffic", false, testTraffic},
		{"SharedReceives", false, testSharedReceives},
		{"WaitsForReceives", false, testWaitsForReceives},
		{"Refused", false, testRefused},
		{"OwnPieces", false, testOwnPieces},
		{"Fail", false, testFail},
		{"PeerFails", false, testPeerFails},
		{"Armed", false, testArmed},
		{"ArmedLate", false, testArmedLate},
		{"PollsInParts", false, testPollsInParts},
		{"Again", false, testAgain},
		{"WrongArguments", false, testWrongArguments},
		{"CloseOrder", false, testCloseOrder},
		{"Devices", false, testDevices},
		{"NoAllocations", l.Allocates, testNoAllocations},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.skip {
				t.Skip("this implementation does not promise it")
			}
			a, b := make(t)
			tt.run(t, newBench(t, a, b))
		})
	}
}
