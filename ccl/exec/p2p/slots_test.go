package p2p

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlots(t *testing.T) {
	var s slots
	a, b := &message{stage: asking}, &message{stage: cleared}
	s.put(a)
	s.put(b)
	require.Same(t, a, s.get(a.id, asking))
	require.Nil(t, s.get(a.id, cleared), "an id is good for one stage")
	require.Same(t, b, s.get(b.id, cleared))
	require.Nil(t, s.get(0, asking))
	require.Nil(t, s.get(math.MaxUint64, asking))

	old := a.id
	s.drop(old)
	require.Nil(t, s.get(old, asking))
	s.put(a)
	require.NotEqual(t, old, a.id)
	require.Nil(t, s.get(old, asking), "an id is not good after its end")
	require.Len(t, s.entries, 2)

	s.entries[uint32(a.id)].generation = math.MaxUint32
	s.drop(math.MaxUint32<<32 | a.id&math.MaxUint32)
	s.put(a)
	require.NotZero(t, a.id>>32)
}
