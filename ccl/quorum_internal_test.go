package ccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

func TestFarewell(t *testing.T) {
	text := farewell(5, []int{1, 3})
	require.Equal(t, `{"by":[0,2,4],"count":3}`, string(text))
	require.Equal(t, []int{0, 2, 4}, leftOutBy(text, 5).Culprits())
	text = farewell(MaxRanks, []int{MaxRanks - 1})
	require.LessOrEqual(t, len(text), transport.MaxWhy)
	require.ErrorContains(t, leftOutBy(text, MaxRanks), ", 31 and 65503 more, which have gone on")
	for _, none := range [][]byte{
		nil, []byte("x"), []byte("{}"), []byte(`{"by":[5],"count":1}`), []byte(`{"by":[-1],"count":1}`),
		[]byte(`{"by":[],"count":0}`), []byte(`{"by":[0,1],"count":1}`), []byte(`{"by":[0],"count":6}`),
		fault.New(fault.Timeout, "late").Report(2), // who gives up says something else
	} {
		require.Nil(t, leftOutBy(none, 5), "%s", none)
	}
}

func TestListed(t *testing.T) {
	require.Equal(t, "rank 3", listed([]int{3}))
	require.Equal(t, "ranks 0, 2", listed([]int{0, 2}))
	require.Contains(t, listed(make([]int, 40)), "0 and 8 more")
}
