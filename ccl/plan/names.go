package plan

import (
	"fmt"
	"math/bits"
	"strings"
)

var (
	aliasNames = []string{"in_place", "lend"}
	needNames  = []string{"messages", "puts", "gets", "counts"}
)

// String returns "none", or the names of the set joined by '+': "in_place+lend".
func (a Alias) String() string { return setString("alias", uint8(a), aliasNames) }

// String returns "none", or the names of the needs joined by '+': "messages+counts".
func (n Need) String() string { return setString("need", uint8(n), needNames) }

func setString(what string, set uint8, names []string) string {
	if set == 0 {
		return "none"
	}
	if bits.Len8(set) > len(names) {
		return fmt.Sprintf("%s(%d)", what, set)
	}
	return strings.Join(setNames(set, names), "+")
}

func setNames(set uint8, names []string) []string {
	var words []string
	for i, name := range names {
		if set>>i&1 != 0 {
			words = append(words, name)
		}
	}
	return words
}

// parseName returns the bit of a name, or 0 if the name is unknown.
func parseName(word string, names []string) uint8 {
	for i, name := range names {
		if name == word {
			return 1 << i
		}
	}
	return 0
}
