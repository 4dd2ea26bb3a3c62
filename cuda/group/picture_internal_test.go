package group

import (
	"fmt"

	"github.com/goccl/goccl/cuda/group/page"
)

// NameOfWord returns how pictures call the word at an offset of a page, and what a value of it
// says.
func NameOfWord(ranks, offset int, value uint64) (name, position string) {
	l := page.Layout{Ranks: ranks}
	position = fmt.Sprint("call ", page.OpOf(value))
	if piece := value >> 12 & (page.MostPieces - 1); piece > 0 {
		position += fmt.Sprint(", piece ", piece)
	}
	if nth := value & (page.MostSignals - 1); nth > 0 {
		position += fmt.Sprint(", step ", nth)
	}
	switch offset {
	case l.Begun():
		return "begun", position
	case l.Ended():
		return "ended", position
	}
	for peer := range ranks {
		switch offset {
		case l.Of(peer, page.Offer), l.Of(peer, page.Signal):
			return "signal", position
		case l.Of(peer, page.Left):
			return "left", position
		}
	}
	return fmt.Sprint("word ", offset), position
}
