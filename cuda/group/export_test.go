package group

import (
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
)

// OfferedOfTwo is where, in the page of a rank of two, the word is that its stream ahead writes.
const OfferedOfTwo = (2*page.WordsOfPeer + 4) * page.WordBytes

// Lie has the rank tell places that are so many bytes behind those where its tensors are.
func (g *Group) Lie(by int) {
	w := g.windows()
	w.Arena.Base -= cuda.Ptr(by)
	w.Arena.Bytes += by
}

// Skip makes a group go on as after so many operations over windows. All ranks do so before their
// first call.
func (g *Group) Skip(operations uint64) { g.windows().op = operations }

func (g *Group) windows() *windows { return g.ways[0].(*windows) }
