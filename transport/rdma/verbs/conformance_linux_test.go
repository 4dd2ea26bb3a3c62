//go:build (amd64 || arm64) && !nordma

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/rdma/verbs/verbstest"
)

// TestAdapterConformance tests the system's library as the one in memory of verbstest is tested.
func TestAdapterConformance(t *testing.T) {
	verbs.NeedAdapter(t)
	verbstest.Run(t, func(t *testing.T) (a, b verbs.Library) {
		lib, err := verbs.Open()
		require.NoError(t, err)
		return lib, lib
	}, verbstest.Lacks{Allocates: verbs.UnderRace})
}
