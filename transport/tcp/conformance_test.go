package tcp

import (
	"fmt"
	"testing"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/require"
)

// loopback returns a fabric that appears to others as a process of its own.
func loopback(t testing.TB, change func(*Options)) (*Fabric, *park.Doorbell) {
	t.Helper()
	o := Options{Doorbell: park.NewDoorbell(), Interfaces: "lo"}
	if change != nil {
		change(&o)
	}
	f, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, o.Doorbell
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, doorbellA := loopback(t, nil)
		b, doorbellB := loopback(t, nil)
		return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
	}, transporttest.Options{})
}

// TestConformanceSelf links the ranks of one process.
func TestConformanceSelf(t *testing.T) {
	for _, o := range []transporttest.Options{{}, {OnUse: true}} {
		if testing.Short() && !o.OnUse {
			continue
		}
		t.Run(fmt.Sprintf("OnUse=%v", o.OnUse), func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) transporttest.Pair {
				f, doorbell := loopback(t, nil)
				return transporttest.Pair{A: f, B: f, DoorbellA: doorbell, DoorbellB: doorbell}
			}, o)
		})
	}
}
