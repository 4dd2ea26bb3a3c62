package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/goccl/goccl"

// module is the input of the rules: every text file of the repository, and the syntax of the Go
// files.
type module struct {
	texts []textFile
	files []*goFile
}

type textFile struct {
	path string // from the root of the repository, with slashes
	text []byte
}

type goFile struct {
	path string
	dir  string // the package, from the root of the module
	test bool
	ast  *ast.File
	set  *token.FileSet
}

type importSpec struct {
	path  string // for a package of this module its dir, otherwise the import path
	ours  bool
	local string // the name of the package in the file
	line  int
}

// finding is one violation.
type finding struct {
	path string
	line int
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.what) }

// loadRepository reads the repository that contains this package.
func loadRepository(t *testing.T) *module {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the root of the module is not where it is looked for: %v", err)
	}
	m := &module{}
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if notOurs(rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || rel == ".git" { // a file in a git worktree
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || bytes.IndexByte(text, 0) >= 0 { // removed meanwhile, or not text
			return nil
		}
		return m.add(rel, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// notOurs reports whether a folder is not committed.
func notOurs(dir string) bool {
	base := path.Base(dir)
	if dir == "." || dir == ".ci" {
		return false
	}
	return strings.HasPrefix(base, ".") || base == "__pycache__" || strings.HasSuffix(base, ".egg-info") ||
		dir == "build" || dir == "dist"
}

func (m *module) add(name string, text []byte) error {
	m.texts = append(m.texts, textFile{name, text})
	parts := strings.Split(name, "/")
	if path.Ext(name) != ".go" || slices.Contains(parts, "testdata") ||
		slices.ContainsFunc(parts, func(p string) bool { return p[0] == '_' }) {
		return nil
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	m.files = append(m.files, &goFile{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), syntax, set})
	return nil
}

func (f *goFile) line(node ast.Node) int { return f.set.Position(node.Pos()).Line }

func (f *goFile) imports() []importSpec {
	var all []importSpec
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser accepts no such file
		}
		imported := importSpec{path: name, local: path.Base(name), line: f.line(spec)}
		if rest, ours := strings.CutPrefix(name+"/", modulePath+"/"); ours {
			imported.ours, imported.path = true, strings.TrimSuffix(rest, "/")
		}
		if spec.Name != nil {
			imported.local = spec.Name.Name
		}
		all = append(all, imported)
	}
	return all
}

// uses returns the places where the file names one of the given functions of a package.
func (f *goFile) uses(pkg string, names ...string) []finding {
	var all []finding
	for _, imported := range f.imports() {
		if imported.path != pkg {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if of, ok := selector.X.(*ast.Ident); ok && of.Name == imported.local &&
				slices.Contains(names, selector.Sel.Name) {
				all = append(all, finding{f.path, f.line(selector), pkg + "." + selector.Sel.Name})
			}
			return true
		})
	}
	return all
}

// within reports whether a package is one of the folders or lies below one of them.
func within(dir string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return dir == folder || strings.HasPrefix(dir, folder+"/")
	})
}
