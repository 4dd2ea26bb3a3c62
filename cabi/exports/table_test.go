package exports

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	var tab table[int]
	require.Nil(t, tab.get(0))
	require.Nil(t, tab.get(1))
	one, two := 1, 2
	a, b := tab.put(&one), tab.put(&two)
	require.NotEqual(t, a, b)
	require.NotZero(t, a)
	require.Equal(t, &one, tab.get(a))
	require.Equal(t, &one, tab.take(a))
	require.Nil(t, tab.get(a), "a handle that was given back")
	require.Nil(t, tab.take(a))
	c := tab.put(&one)
	require.NotEqual(t, a, c, "the place is used again, the handle is not")
	require.Nil(t, tab.get(a))
	require.Equal(t, &two, tab.get(b))
	for _, h := range []uint64{1 << 40, 12345, ^uint64(0)} {
		require.Nil(t, tab.get(h))
	}
}

func TestTableByManyThreads(t *testing.T) {
	var tab table[int]
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for range 2000 {
				v := g
				h := tab.put(&v)
				if tab.get(h) != &v || tab.take(h) != &v || tab.get(h) != nil {
					t.Error("a handle stands for something else")
					return
				}
			}
		})
	}
	group.Wait()
}

func TestTableAllocatesNothing(t *testing.T) {
	var tab table[int]
	v := 1
	tab.take(tab.put(&v))
	require.Zero(t, testing.AllocsPerRun(100, func() { tab.take(tab.put(&v)) }))
}
