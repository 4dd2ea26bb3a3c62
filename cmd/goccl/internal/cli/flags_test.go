package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string][]int64{
		"8":         {8},
		"0":         {0},
		"1K,64,1KB": {1024, 64, 1000},
		"8..128":    {8, 32, 128},
		"8..100":    {8, 32, 100},
		"0..64":     {0, 64},
		"4T..16T":   {4 << 40, 16 << 40},
		"1,8..40":   {1, 8, 32, 40},
	} {
		sizes, err := ParseSizes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, sizes.Each(4), text)
	}
	sizes, err := ParseSizes("64..100,8")
	require.NoError(t, err)
	least, most := sizes.Ends()
	require.Equal(t, []int64{8, 100}, []int64{least, most})
	require.Equal(t, []int64{64, 100, 8}, sizes.Each(1<<62), "no size is beyond all limits")
	for _, text := range []string{"", "x", "8..", "2..1", "1..x", "1,,2"} {
		_, err := ParseSizes(text)
		require.Error(t, err, text)
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string][]int{
		"4": {4}, "8,2,4,2": {2, 4, 8}, "3-5": {3, 4, 5}, "2, 4-5": {2, 4, 5}, "64": {64},
	} {
		all, err := Numbers(2, 64)(text)
		require.NoError(t, err, text)
		require.Equal(t, want, all, text)
	}
	for _, text := range []string{"", "1", "65", "5-4", "two", "2-", "2,,3"} {
		_, err := Numbers(2, 64)(text)
		require.ErrorContains(t, err, "want numbers from 2 to 64", text)
	}
}

func TestWrap(t *testing.T) {
	const word = "123456789"
	long := word + " " + word + " " + word + " " + word + " " + word + " " + word + " " + word + " " + word + " " + word
	require.Equal(t, long[:79]+"\n  "+word+"\n", Wrap(long, 2))
	require.Equal(t, "  short\n\nlines\n", Wrap("  short\n\nlines", 4))
	list := word + "," + word + "," + word + "," + word + "," + word + "," + word + "," + word + "," + word + "," + word
	require.Equal(t, "a "+list[:70]+"\n"+list[70:]+"\n", Wrap("a "+list, 0))
}
