package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading      = regexp.MustCompile(`^#+ +(.*)$`)
	inlineCode   = regexp.MustCompile("`[^`]*`")
)

// anchors returns the anchors that GitHub gives the headings of a page.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, line := range prose(string(text)) {
		if m := heading.FindStringSubmatch(line); m != nil {
			found[strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(m[1]))] = true
		}
	}
	return found
}

// prose returns the lines of a page outside code blocks.
func prose(text string) []string {
	var lines []string
	code := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			lines = append(lines, line)
		}
	}
	return lines
}

// The table of levels in docs/determinism.md matches the registry.
func TestLevelsPage(t *testing.T) {
	var rows strings.Builder
	for _, coll := range dtype.Collectives() {
		if !coll.Reduces() {
			continue
		}
		levels := map[int][]string{}
		for _, a := range algo.For(coll) {
			levels[a.Level] = append(levels[a.Level], "`"+a.Name+"`")
		}
		fmt.Fprintf(&rows, "| %v | %s | %s | %s |\n", coll,
			strings.Join(levels[2], ", "), strings.Join(levels[3], ", "), strings.Join(levels[4], ", "))
	}
	page, err := os.ReadFile(docs + "/determinism.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "\n"+rows.String()+"\n")
}

// Every link from a page of the repository to another page, or to a heading, has a target;
// docs/README.md lists all pages of docs.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{
		"../../*.md", docs + "/*.md", docs + "/*/*.md", "../../ccl/*/*.md", "../../*/README.md",
	} {
		some, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, some...)
	}
	require.Greater(t, len(pages), 8)
	links := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, line := range prose(string(text)) {
			for _, m := range markdownLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, "code"), -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				links++
				path := page
				if target != "" {
					path = filepath.Join(filepath.Dir(page), target)
				}
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s links to %s, which is not there", page, m[1])
				} else if anchor != "" && !anchors(t, path)[anchor] {
					t.Errorf("%s links to %s, but %s has no such heading", page, m[1], path)
				}
			}
		}
	}
	require.Greater(t, links, 100)
	index, err := os.ReadFile(docs + "/README.md")
	require.NoError(t, err)
	listed, err := filepath.Glob(docs + "/*.md")
	require.NoError(t, err)
	for _, page := range listed {
		if name := filepath.Base(page); name != "README.md" {
			require.Contains(t, string(index), "]("+name+")", "docs/README.md does not list %s", name)
		}
	}
}
