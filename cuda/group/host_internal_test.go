package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/topo"
)

// What a device has sent after a rank of its host has failed does not leave.
func TestRailsWithhold(t *testing.T) {
	s := tapedRails(t, onHosts(t, dtype.ReduceScatter, "ring", topo.Spread(4, 2)), 0)
	w, g := s.w, s.w.g
	w.page = pageMemory{host: make([]byte, w.layout.Bytes())}
	p, call := w.forms[0].(*rails).to[2], &Op{g: g}
	message := &Op{g: g, of: call, call: exec.Call{Coll: dtype.Send, Root: 2}}
	require.False(t, p.withholds(message))
	w.failedOf(w.page.Host(), 1).Store(1)
	require.True(t, p.withholds(message))
	require.False(t, p.withholds(&Op{g: g, call: message.call}), "a message of the caller")
}

// pageMemory is a page that only the host uses.
type pageMemory struct {
	slotMemory
	host []byte
}

func (m pageMemory) Host() []byte { return m.host }
