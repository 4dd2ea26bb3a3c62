package network

import "strings"

// entry is a value in a JSON object: the value of a key, or an element of the list that a key has.
type entry struct {
	key    string
	index  int // of an element of a list; -1 for the value of the key
	offset int // where the value begins
}

// scan calls visit for the entries of the JSON object in text, in their order, until visit returns
// false. It parses little of JSON and finds no errors: it serves to count before anything is
// allocated, and to find places.
func scan(text []byte, visit func(entry) bool) {
	var key, word string
	depth, index, pending := 0, 0, false // pending: an entry begins at the next word
	for i := 0; i < len(text); i++ {
		c := text[i]
		if strings.IndexByte(" \t\r\n", c) >= 0 {
			continue
		}
		if pending && c != ']' && c != '}' {
			e := entry{key, -1, i}
			if depth == 2 {
				e.index = index
			}
			if !visit(e) {
				return
			}
		}
		pending = false
		switch c {
		case '"':
			end := stringEnd(text, i)
			if depth == 1 {
				word = string(text[min(i+1, end):min(end, i+1+MaxName)])
			}
			i = end
		case ':':
			if depth == 1 {
				key, pending = word, true
			}
		case '[', '{':
			depth++
			if depth == 2 && c == '[' {
				index, pending = 0, true
			} else if depth == 2 {
				index = -1 // an object; its entries are not visited
			}
		case ']', '}':
			depth--
		case ',':
			if depth == 2 && index >= 0 {
				index, pending = index+1, true
			}
		}
	}
}

// stringEnd returns where the string that begins at text[i] has its closing quote, or the end of
// text.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return min(i, len(text))
}
