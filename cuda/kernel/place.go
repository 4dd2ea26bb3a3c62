package kernel

import "github.com/goccl/goccl/ccl/dtype"

// PlaceBits is the number of bits of an offset in a place.
const PlaceBits = 40

const placeLent = 1 << PlaceBits

// Place is the value of a word that says where a source is: at an offset in the memory that is
// lent, or else at its own address. The bits above have the number, which users count up, so that
// the values of a word never go back (package cuda); kernels do not look at it.
func Place(number uint64, lent bool, offset uint64) uint64 {
	place := number << (PlaceBits + 1)
	if lent {
		place |= placeLent | offset
	}
	return place
}

// Places returns the addresses of the words that a launch reads to find its sources.
func Places(name string, args []byte) ([]uint64, error) {
	if TakesChunks(name) {
		g, err := gatherOf(name, args)
		if err != nil {
			return nil, err
		}
		return g.places(), nil
	}
	_, a, err := launch(name, args)
	if err != nil || a.N == 0 {
		return nil, err
	}
	var places []uint64
	for k := range a.Src[:a.Count] {
		if a.Indirect>>k&1 != 0 {
			places = append(places, a.Lent[k].Place)
		}
	}
	return places, nil
}

// Resolve returns the arguments of a launch whose sources are not indirect any more: load returns
// the word at an address. A place that is not in the memory that is lent, or not aligned, is not
// followed.
func Resolve(name string, args []byte, load func(place uint64) uint64) ([]byte, error) {
	if TakesChunks(name) {
		g, err := gatherOf(name, args)
		if err != nil {
			return nil, err
		}
		g.resolve(load)
		return g.Bytes(), nil
	}
	f, a, err := launch(name, args)
	if err != nil {
		return nil, err
	}
	part, _ := dtype.Real(f.from)
	for k := range a.Src[:a.Count] {
		if a.Indirect>>k&1 == 0 {
			continue
		}
		a.Src[k] = a.Lent[k].follow(load(a.Lent[k].Place), a.Src[k], a.N*uint64(f.from.Size()), part.Size())
	}
	a.Indirect = 0
	return a.Bytes(), nil
}

// follow returns where a place leads to, for that number of bytes: to own if not into what is lent.
func (l *Lent) follow(place, own, bytes uint64, align int) uint64 {
	at := place % placeLent
	if place&placeLent != 0 && at%uint64(align) == 0 && bytes <= l.Bytes && at <= l.Bytes-bytes {
		return l.Base + at
	}
	return own
}
