package humanize

// DidYouMean returns the end of an error's text that suggests the name most like a mistyped word,
// or "" if no name is like it.
func DidYouMean(word string, names []string) string {
	if best := Nearest(word, names); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// Nearest returns the name most like word, or "" if no name is like it.
func Nearest(word string, names []string) string {
	best, least := "", 1+len(word)/4
	for _, name := range names {
		if d := distance(word, name); d <= least && d < len(word) {
			best, least = name, d-1
		}
	}
	return best
}

// distance returns how many letters must be inserted, deleted or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := before
			if a[i] != b[j] {
				d = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
