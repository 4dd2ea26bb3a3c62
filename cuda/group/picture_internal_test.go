package group

import "fmt"

// NameOfWord returns how pictures call the word at an offset of a page, and what a value of it
// says.
func NameOfWord(ranks, offset int, value uint64) (name, position string) {
	l := layout{ranks: ranks}
	position = fmt.Sprint("call ", opOf(value))
	if piece := value >> 12 & (mostPieces - 1); piece > 0 {
		position += fmt.Sprint(", piece ", piece)
	}
	if nth := value & (mostSignals - 1); nth > 0 {
		position += fmt.Sprint(", step ", nth)
	}
	switch offset {
	case l.begun():
		return "begun", position
	case l.ended():
		return "ended", position
	}
	for peer := range ranks {
		switch offset {
		case l.of(peer, wordOffer), l.of(peer, wordSignal):
			return "signal", position
		case l.of(peer, wordLeft):
			return "left", position
		}
	}
	return fmt.Sprint("word ", offset), position
}
