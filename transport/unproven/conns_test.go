package unproven

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type conn struct{ closed int }

func (c *conn) Close() error {
	c.closed++
	return nil
}

func TestConns(t *testing.T) {
	set := New(3)
	all := make([]*conn, 8)
	for i := range all {
		all[i] = &conn{}
	}
	closed := func() (list []int) {
		for i, c := range all {
			require.LessOrEqual(t, c.closed, 1)
			if c.closed > 0 {
				list = append(list, i)
			}
		}
		return list
	}
	for i := range 3 {
		set.Add(all[i])
	}
	require.Empty(t, closed())
	require.True(t, set.Remove(all[1]), "it has proven itself, and leaves a place")
	require.False(t, set.Remove(all[1]))
	set.Add(all[3])
	require.Empty(t, closed())
	set.Add(all[4])
	require.Equal(t, []int{0}, closed(), "the oldest goes")
	require.False(t, set.Remove(all[0]))
	set.Add(all[5])
	require.Equal(t, []int{0, 2}, closed())
	require.True(t, set.Remove(all[4]))
	set.Close()
	require.Equal(t, []int{0, 2, 3, 5}, closed())
	require.False(t, set.Remove(all[3]))
	set.Add(all[6])
	set.Close()
	require.Equal(t, []int{0, 2, 3, 5, 6}, closed())
}
