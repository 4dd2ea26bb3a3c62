package p2p

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// longest returns the length of the longest chain of the table, and the number of its queues.
func (t *matchTable) longest() (most, queues int) {
	for _, q := range t.buckets {
		n := 0
		for ; q != nil; q = q.next {
			n++
		}
		most, queues = max(most, n), queues+n
	}
	return most, queues
}

// TestMatchTableOfMany: what is in the way of a match does not grow with what is posted, or has
// arrived: the table grows with the number of different sources and tags, and what has the same is
// one queue.
func TestMatchTableOfMany(t *testing.T) {
	const many = 100_000
	for name, tag := range map[string]func(i int) (source int, tag uint64){
		"tags":             func(i int) (int, uint64) { return 1, uint64(i) },
		"tags in steps":    func(i int) (int, uint64) { return 1, uint64(i) << 12 },
		"sources and tags": func(i int) (int, uint64) { return i % 64, uint64(i / 64) },
		"any source":       func(i int) (int, uint64) { return AnySource, uint64(i) },
		"one":              func(i int) (int, uint64) { return 1, 7 },
	} {
		t.Run(name, func(t *testing.T) {
			var table matchTable
			receives := make([]Request, many)
			for i := range receives {
				receives[i].Peer, receives[i].Tag = tag(i)
				table.addReceive(&receives[i])
			}
			most, _ := table.longest()
			require.LessOrEqual(t, most, 16, "queues in the way of one")
			for i := range receives { // the last one first, but in one queue the oldest first
				r := &receives[many-1-i]
				if name == "one" {
					r = &receives[i]
				}
				require.Same(t, r, table.takeReceive(max(r.Peer, 0), r.Tag))
			}
			_, queues := table.longest()
			require.Zero(t, queues)
			require.Zero(t, table.waiting)

			messages := make([]message, many)
			for i := range messages {
				m := &messages[i]
				m.peer, m.tag = tag(i)
				m.peer = max(m.peer, 0)
				table.addMessage(m)
			}
			most, _ = table.longest()
			require.LessOrEqual(t, most, 16)
			for i := range messages {
				m := &messages[many-1-i]
				if name == "one" {
					m = &messages[i]
				}
				require.Same(t, m, table.takeMessage(m.peer, m.tag, 64))
			}
			require.Zero(t, table.arrived)
			require.LessOrEqual(t, table.spare, keepMessages)
		})
	}
}

// TestMatchTableOrder: of receives from a source and from any, and of messages from several
// sources, the oldest is taken.
func TestMatchTableOrder(t *testing.T) {
	var table matchTable
	receives := [...]Request{{Peer: 1, Tag: 5}, {Peer: AnySource, Tag: 5}, {Peer: 2, Tag: 5}, {Peer: 1, Tag: 5}}
	for i := range receives {
		table.addReceive(&receives[i])
	}
	require.Nil(t, table.takeReceive(1, 6))
	require.Same(t, &receives[1], table.takeReceive(2, 5))
	require.Same(t, &receives[0], table.takeReceive(1, 5))
	require.Same(t, &receives[2], table.takeReceive(2, 5))
	require.Nil(t, table.takeReceive(2, 5))
	table.removeReceive(&receives[3])
	require.Nil(t, table.takeReceive(1, 5))
	messages := [...]message{{peer: 2, tag: 5}, {peer: 1, tag: 5}, {peer: 2, tag: 5}}
	for i := range messages {
		table.addMessage(&messages[i])
	}
	require.Same(t, &messages[1], table.takeMessage(1, 5, 3))
	require.Same(t, &messages[0], table.takeMessage(AnySource, 5, 3))
	require.Same(t, &messages[2], table.takeMessage(AnySource, 5, 3))
	require.Nil(t, table.takeMessage(AnySource, 5, 3))
}
