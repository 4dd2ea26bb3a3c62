package lint

import (
	"fmt"
	"go/scanner"
	"go/token"
	"strings"
	"unicode/utf8"
)

// The widest lines, in columns; a tab has four.
const (
	widestCode    = 120
	widestComment = 100 // of lines that are nothing but a comment
)

// longText is the length of a string literal that may make a line of code wider: such a literal is
// read as one thing, and breaking it would hide it from a search.
const longText = 40

// checkWidth finds lines of Go and C++ that are wider than a window beside another one.
func checkWidth(m *module) []finding {
	var all []finding
	for _, f := range m.texts {
		golang := strings.HasSuffix(f.path, ".go")
		if !golang && !strings.HasSuffix(f.path, ".cpp") && !strings.HasSuffix(f.path, ".h") || isGenerated(f.text) {
			continue
		}
		exempt := map[int]bool{}
		if golang {
			exempt = linesOfTexts(f.text)
		}
		for index, line := range strings.Split(string(f.text), "\n") {
			most := widestCode
			if golang && strings.HasPrefix(strings.TrimSpace(line), "// ") {
				most = widestComment
			}
			width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			if width > most && !exempt[index+1] {
				all = append(all, finding{f.path, index + 1, fmt.Sprintf("has %d columns, at most %d", width, most)})
			}
		}
	}
	return all
}

// linesOfTexts returns the lines of a Go file that have a part of a long string literal.
func linesOfTexts(text []byte) map[int]bool {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && utf8.RuneCountInString(literal) >= longText {
			for n := range strings.Count(literal, "\n") + 1 {
				lines[set.Position(at).Line+n] = true
			}
		}
	}
}

func isGenerated(text []byte) bool { return strings.Contains(string(text), "DO NOT EDIT.") }
