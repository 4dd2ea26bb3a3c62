package tcp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhenAPathIsGivenUp has fragments arrive damaged now and then, and says which of them is the
// last that is forgiven.
func TestWhenAPathIsGivenUp(t *testing.T) {
	const never = 0
	for _, test := range []struct {
		name  string
		every time.Duration
		moves bool // fragments arrive between
		over  int  // at which one the path is given up
	}{
		{"one a day", 24 * time.Hour, true, never},
		{"one a minute", time.Minute, true, never},
		{"two a minute", 30 * time.Second, true, 3},
		{"at once", 0, true, 3},
		{"one an hour, and nothing else", time.Hour, false, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, at := changes{}, time.Unix(1e9, 0)
			for i := 1; i <= 1000; i++ {
				arrived := uint32(0)
				if test.moves {
					arrived = uint32(i)
				}
				over := x.add(at, arrived)
				require.Equal(t, test.over == i, over, "number %d", i)
				if over {
					break
				}
				at = at.Add(test.every)
			}
		})
	}
	x, at := changes{}, time.Unix(1e9, 0)
	for i := range 3 { // a bad minute long ago is forgotten
		require.Equal(t, i == 2, x.add(at, uint32(i)))
	}
	require.False(t, x.add(at.Add(48*time.Hour), 7))
	require.Equal(t, "number 4 in 48h0m0s, 1.5 a day", x.rate())
}
