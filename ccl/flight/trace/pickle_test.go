package trace

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The output of Python's pickle.dumps(value, protocol=2), without the memo, which readers do not
// need.
func TestPickle(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, "N"},
		{true, "\x88"},
		{false, "\x89"},
		{7, "J\x07\x00\x00\x00"},
		{-2, "J\xfe\xff\xff\xff"},
		{int64(math.MaxInt32) + 1, "\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00"},
		{int64(math.MinInt64), "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"},
		{1.5, "G\x3f\xf8\x00\x00\x00\x00\x00\x00"},
		{"ab", "X\x02\x00\x00\x00ab"},
		{"µ", "X\x02\x00\x00\x00\xc2\xb5"},
		{list{}, "](e"},
		{list{true, "a"}, "](\x88X\x01\x00\x00\x00ae"},
		{dict{}, "}(u"},
		{dict{{"a", nil}}, "}(X\x01\x00\x00\x00aNu"},
		{tuple{nil, true}, "N\x88\x86"},
	} {
		require.Equal(t, "\x80\x02"+c.want+".", string(pickle(c.value)), "%v", c.value)
	}
	require.Panics(t, func() { pickle(struct{}{}) })
}
