package plan

import (
	"bytes"
	"encoding/json"
	"math"
	"unicode/utf8"
)

// jsonReader reads the JSON form (RFC 8259) token by token. It is strict, knows its position, and
// allocates no memory for input that it skips; encoding/json takes ten times as long for a hostile
// file.
type jsonReader struct {
	*file
	at   int // offset of the next character
	rank int // rank whose program is being read
}

// here skips white space and returns the offset of the next token.
func (r *jsonReader) here() int {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\r', '\n':
			r.at++
			continue
		}
		break
	}
	return r.at
}

// take consumes the character c if it comes next.
func (r *jsonReader) take(c byte) bool {
	if at := r.here(); r.err != nil || at == len(r.data) || r.data[at] != c {
		return false
	}
	r.at++
	return true
}

// want records the error that something other than wanted comes next.
func (r *jsonReader) want(what, wanted string) {
	if at := r.here(); at == len(r.data) {
		r.fail(at, "the file ends in the middle")
	} else {
		r.fail(at, "%s: want %s", what, wanted)
	}
}

// object reads an object. The function field reads the value of a key, and reports whether there is
// such a key.
func (r *jsonReader) object(what string, field func(key string, at int) bool) {
	if !r.take('{') {
		r.want(what, "'{'")
		return
	}
	if r.take('}') {
		return
	}
	var buffer [16]string
	for seen := buffer[:0]; r.err == nil; {
		at := r.here()
		key := r.text(what)
		for _, k := range seen {
			if k == key {
				r.fail(at, "%s: %.100q is given twice", what, key)
			}
		}
		seen = append(seen, key)
		if !r.take(':') {
			r.want(what, "':'")
		}
		if r.err == nil && !field(key, r.here()) {
			r.fail(at, "%s: unknown field %.100q", what, key)
		}
		if !r.take(',') {
			if !r.take('}') {
				r.want(what, "',' or '}'")
			}
			return
		}
	}
}

// array reads an array; the function element reads one element.
func (r *jsonReader) array(what string, element func(i int)) {
	if !r.take('[') {
		r.want(what, "'['")
		return
	}
	if r.take(']') {
		return
	}
	for i := 0; r.err == nil; i++ {
		element(i)
		if !r.take(',') {
			if !r.take(']') {
				r.want(what, "',' or ']'")
			}
			return
		}
	}
}

// text reads a string.
func (r *jsonReader) text(what string) string {
	if !r.take('"') {
		r.want(what, "a string")
		return ""
	}
	from, escaped := r.at, false
	for ; r.at < len(r.data) && r.data[r.at] >= ' '; r.at++ {
		switch r.data[r.at] {
		case '\\':
			escaped = true
			r.at++ // the escaped character does not end the string
		case '"':
			r.at++
			if !escaped {
				return string(r.data[from : r.at-1])
			}
			var s string
			if json.Unmarshal(r.data[from-1:r.at], &s) != nil {
				r.fail(from-1, "%s: a string with an escape that JSON does not have", what)
			}
			return s
		}
	}
	if r.at >= len(r.data) {
		r.fail(len(r.data), "the file ends in the middle")
	} else {
		r.fail(r.at, "%s: a control character in a string", what)
	}
	return ""
}

func (r *jsonReader) bool(what string) bool {
	switch rest := r.data[r.here():]; {
	case bytes.HasPrefix(rest, []byte("true")):
		r.at += len("true")
		return true
	case bytes.HasPrefix(rest, []byte("false")):
		r.at += len("false")
		return false
	}
	r.want(what, "true or false")
	return false
}

// integer reads a number between lo and hi.
func (r *jsonReader) integer(what string, lo, hi int64) int64 {
	at := r.here()
	if r.err != nil {
		return lo
	}
	if at == len(r.data) {
		r.want(what, "a whole number")
		return lo
	}
	i := at
	if r.data[i] == '-' {
		i++
	}
	first, n, ok := i, int64(0), true
	for ; i < len(r.data) && digit(r.data[i]); i++ {
		d := int64(r.data[i] - '0')
		if ok = ok && n <= (math.MaxInt64-d)/10; ok {
			n = 10*n + d
		}
	}
	leading := i > first+1 && r.data[first] == '0'
	fraction := i < len(r.data) && bytes.IndexByte([]byte(".eE"), r.data[i]) >= 0
	if !ok || i == first || leading || fraction {
		r.fail(at, "%s: want a whole number from %d to %d", what, lo, hi)
		return lo
	}
	if first > at {
		n = -n
	}
	r.at = i
	return r.number(at, what, n, lo, hi)
}

// invalidUTF8 returns the offset of the first invalid byte of data, which is not UTF-8.
func invalidUTF8(data []byte) int {
	for at := 0; at < len(data); {
		c, n := utf8.DecodeRune(data[at:])
		if c == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
	return len(data)
}

// item counts an element of a list of a step, but for the first, which belongs to the step.
func (r *jsonReader) item(i int) {
	if i > 0 {
		r.list(r.at)
	}
}
