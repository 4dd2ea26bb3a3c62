package rdma

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/transporttest"
)

// onAdapter returns the adapters of this machine, and skips the test where there are none.
func onAdapter(t testing.TB) verbs.Library {
	t.Helper()
	library, err := verbs.Open()
	if err == nil {
		var devices []verbs.Device
		if devices, err = library.Devices(); err == nil {
			_, err = Select(devices, Wishes{GID: AnyGID})
		}
	}
	if errors.Is(err, fault.NotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return library
}

// TestConformanceOnAdapter runs the suite over real adapters, one of which serves both processes.
func TestConformanceOnAdapter(t *testing.T) {
	library := onAdapter(t)
	for _, o := range []transporttest.Options{
		{Allocates: true, Gathers: true}, {Allocates: true, Gathers: true, OnUse: true},
	} {
		t.Run(fmt.Sprintf("OnUse=%v", o.OnUse), func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) transporttest.Pair {
				a, doorbellA := process(t, library, nil)
				b, doorbellB := process(t, library, nil)
				return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
			}, o)
		})
	}
}

// TestTrafficOnAdapter sends over several channels of several links at once.
func TestTrafficOnAdapter(t *testing.T) {
	library := onAdapter(t)
	var x, y end
	x.f, x.doorbell = process(t, library, nil)
	y.f, y.doorbell = process(t, library, nil)
	for range 3 {
		x.link, y.link = joined(t, x.f, y.f, 4)
		require.True(t, x.up(y) && y.up(x))
		require.NoError(t, talk(x, y, 4, 1, 200))
		require.NoError(t, x.link.Close())
		require.NoError(t, y.link.Close())
	}
}
