package kernel

import "github.com/goccl/goccl/ccl/fault"

// gatherOf decodes the chunks of a launch, and checks them. What a source is that is not lent does
// not show yet, but it is separate from all that is written even so.
func gatherOf(name string, args []byte) (*Gather, error) {
	if len(args) != gatherBytes {
		return nil, fault.New(fault.Invalid, "%s: %d bytes of arguments, not %d", name, len(args), gatherBytes)
	}
	g := decodeGather(args)
	if g.Count < 1 || g.Count > MostChunks {
		return nil, fault.New(fault.Invalid, "%s: %d chunks, not 1 to %d", name, g.Count, MostChunks)
	}
	apart := Gather{}
	for i, c := range g.Chunks[:g.Count] {
		switch {
		case c.N > mostUnits:
			return nil, fault.New(fault.Invalid, "%s: %d bytes", name, c.N)
		case overlap(c.Dst, c.N, c.Src, c.N):
			return nil, fault.New(fault.Invalid, "%s: the destination at %#x covers a part of the source at %#x", name,
				c.Dst, c.Src)
		case !apart.Add(c):
			return nil, fault.New(fault.Invalid, "%s: chunk %d, from %#x to %#x, overlaps one before", name, i, c.Src, c.Dst)
		}
	}
	return g, nil
}

func operandsOfChunks(name string, args []byte) (all []Operand, err error) {
	g, err := gatherOf(name, args)
	if err != nil {
		return nil, err
	}
	for _, c := range g.Chunks[:g.Count] {
		if c.N > 0 {
			all = append(all, Operand{Ptr: c.Dst, Bytes: int(c.N), Align: 1, Write: true},
				Operand{Ptr: c.Src, Bytes: int(c.N), Align: 1})
		}
	}
	return all, nil
}

func executeChunks(name string, args []byte, memory func(ptr uint64, bytes int) []byte) error {
	g, err := gatherOf(name, args)
	if err != nil {
		return err
	}
	for _, c := range g.copies() {
		if err := Execute(copying.Name, c.Bytes(), memory); err != nil {
			return err
		}
	}
	return nil
}

func (g *Gather) places() (all []uint64) {
	for _, c := range g.Chunks[:g.Count] {
		if c.Place != 0 && c.N > 0 {
			all = append(all, c.Place)
		}
	}
	return all
}

// resolve replaces the sources that places lead to.
func (g *Gather) resolve(load func(place uint64) uint64) {
	for i := range g.Chunks[:g.Count] {
		if c := &g.Chunks[i]; c.Place != 0 && c.N > 0 {
			c.Src, c.Lent = c.follow(load(c.Place), c.Src, c.N, 1), Lent{}
		}
	}
}
