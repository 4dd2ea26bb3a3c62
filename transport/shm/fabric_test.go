//go:build linux

package shm_test

import (
	"testing"

	"github.com/goccl/goccl/transport/shm"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/require"
)

func newPair(t *testing.T) transporttest.Pair {
	a, err := shm.New(shm.Options{PoolBytes: 4 << 20})
	require.NoError(t, err)
	b, err := shm.New(shm.Options{PoolBytes: 4 << 20})
	require.NoError(t, err)
	return transporttest.Pair{A: a, B: b, BellA: a.Bell(), BellB: b.Bell()}
}

func TestConformance(t *testing.T) { transporttest.Run(t, newPair, transporttest.Options{}) }
