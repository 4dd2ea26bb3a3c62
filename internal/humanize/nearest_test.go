package humanize

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"ring", "binomial", "recursive_doubling", "two_shot"}
	for word, want := range map[string]string{
		"rnig": "ring", "rings": "ring", "binomal": "binomial", "recursive-doubling": "recursive_doubling",
		"x": "", "": "", "tree": "", "twoshot": "two_shot",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
