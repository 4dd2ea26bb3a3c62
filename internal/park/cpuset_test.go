package park

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseCPUs(t *testing.T) {
	for _, c := range []struct {
		text, want string
		count      int
	}{
		{"", "", 0},
		{" 0\n", "0", 1},
		{"0-3,8", "0-3,8", 5},
		{"8,0-3", "0-3,8", 5},
		{"0,1,2, 3", "0-3", 4},
		{"62-65,127-128", "62-65,127-128", 6},
		{"8191", "8191", 1},
	} {
		s, err := ParseCPUs(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, s.String())
		require.Equal(t, c.count, s.Count())
	}
	for _, bad := range []string{"x", "3-1", "-1", "1-", ",", "8192", "0-99999999999", "1-2-3"} {
		_, err := ParseCPUs(bad)
		require.Error(t, err, bad)
	}
}

func TestCPUSetOverlaps(t *testing.T) {
	set := func(list string) CPUSet {
		s, err := ParseCPUs(list)
		require.NoError(t, err)
		return s
	}
	require.True(t, set("0-3").Overlaps(set("3-100")))
	require.False(t, set("0-3").Overlaps(set("4-100")))
	require.False(t, set("").Overlaps(set("0")))
	require.True(t, set("0-1").Has(1))
	require.False(t, set("0-1").Has(2))
	require.False(t, set("0-1").Has(-1))
	require.False(t, set("0-1").Has(6400))
	require.Equal(t, "0-1,70", set("0-1").union(set("70")).String())
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Add("1,,2")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseCPUs(text)
		if err != nil {
			return
		}
		again, err := ParseCPUs(s.String())
		require.NoError(t, err)
		require.Equal(t, s.String(), again.String())
		require.Equal(t, s.Count(), again.Count())
	})
}
