package transporttest

import (
	"runtime"
	"testing"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
)

// Pair is two fabrics of one kind as two processes would have them, each with the doorbell of its
// process. If one fabric joins the ranks of one process, A and B are the same.
type Pair struct {
	A, B                 transport.Fabric
	DoorbellA, DoorbellB *park.Doorbell
}

// Options lists what a kind of fabric does not guarantee.
type Options struct {
	Allocates bool // its hot path allocates memory; the test of that is skipped
	AnyKey    bool // it does not compare Session.Key; the test of that is skipped
	// Something between the two accepts connections for a process that is gone; the
	// tests of what is left of it are skipped.
	Proxied bool
	OnUse   bool // all sessions have Session.OnUse, and the fabric makes paths on use
	Gathers bool // it is a transport.Registrar
}

// Run tests the fabrics that make returns against the whole contract. The suite closes them.
func Run(t *testing.T, make func(t *testing.T) Pair, o Options) {
	type test struct {
		name string
		skip bool
		run  func(*testing.T, *pair)
	}
	tests := []test{
		{"Address", false, testAddress},
		{"ConnectOrder", false, testConnectOrder},
		{"Parts", false, testParts},
		{"State", false, func(t *testing.T, p *pair) { testState(t, p, o.Allocates) }},
		{"Windows", false, testWindows},
		{"WindowSizes", false, testWindowSizes},
		{"Shared", false, testShared},
		{"SharedOnce", false, testSharedOnce},
		{"SharedInVain", false, testSharedInVain},
		{"SharedTooMuch", false, testSharedTooMuch},
		{"ManySessions", false, testManySessions},
		{"ChannelIdentity", false, testChannelIdentity},
		{"Sizes", false, testSizes},
		{"CommitLess", false, testCommitLess},
		{"ForgottenReserve", false, testForgottenReserve},
		{"PeekIdempotent", false, testPeekIdempotent},
		{"Order", false, testOrder},
		{"Series", false, testSeries},
		{"Look", false, testLook},
		{"ThreadsInTurn", false, testThreadsInTurn},
		{"Credit", false, testCredit},
		{"Independence", false, testIndependence},
		{"WakeOnCommit", false, testWakeOnCommit},
		{"WakeOnRelease", false, testWakeOnRelease},
		{"WakeOnFlush", false, testWakeOnFlush},
		{"WakeOnFlushOfConsumed", false, testWakeOnFlushOfConsumed},
		{"WakeOnClose", false, testWakeOnClose},
		{"CloseDelivers", false, testCloseDelivers},
		{"CloseOneOfMany", false, testCloseOneOfMany},
		{"Leave", false, testLeave},
		{"CloseFabric", false, testCloseFabric},
		{"Bulk", false, testBulk},
		{"PingPongAsleep", false, testPingPongAsleep},
		{"Control", false, testControl},
		{"ControlUnattended", false, testControlUnattended},
		{"ControlBeforeClose", false, testControlBeforeClose},
		{"ControlAfterClose", false, testControlAfterClose},
		{"ControlLimits", false, testControlLimits},
		{"ControlBound", false, testControlBound},
		{"ControlCloseFabric", false, testControlCloseFabric},
		{"ControlGone", false, testControlGone},
		{"ControlLeavesNothing", o.Proxied, testControlLeavesNothing},
		{"NoAllocations", o.Allocates, testNoAllocations},
	}
	if o.Gathers {
		tests = append(tests, []test{
			{"Gather", false, testGather},
			{"GatherOthers", false, testGatherOthers},
			{"GatherAsleep", false, testGatherAsleep},
			{"GatherLeft", false, testGatherLeft},
			{"GatherTaken", false, testGatherTaken},
			{"Withdraw", false, testWithdraw},
		}...)
	}
	if o.OnUse {
		tests = append(tests, []test{
			{"OpenBeforePeer", false, testOpenBeforePeer},
			{"OpenToWait", false, testOpenToWait},
			{"OpenAtOnce", false, testOpenAtOnce},
			{"OpenWrongKey", o.AnyKey, testOpenWrongKey},
			{"OpenLeft", false, testOpenLeft},
			{"OpenGone", o.Proxied, testOpenGone},
			{"ControlBeforePeer", false, testControlBeforePeer},
			{"ControlWrongKey", o.AnyKey, testControlWrongKey},
		}...)
	} else {
		tests = append(tests, []test{
			{"ConnectTimeout", false, testConnectTimeout},
			{"GivenUp", false, testGivenUp},
			{"ConnectWrongKey", o.AnyKey, testWrongKey},
		}...)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.skip {
				t.Skip("this fabric does not promise it")
			}
			before := runtime.NumGoroutine()
			m := make(t)
			p := newPair(m)
			p.before = before
			p.onUse = o.OnUse
			t.Cleanup(p.close)
			tt.run(t, p)
		})
	}
}
