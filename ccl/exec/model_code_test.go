//go:build !race

package exec

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharedWords are the words that several threads of a process access without the lock.
var sharedWords = []string{
	"lock", "posted", "pending", "waiting", "turns", "urgent", "stop", "state", "urgency", "notified", "expedited",
	"onDoorbell", "comms", "count", "set",
}

// TestModelIsOfTheCode holds the model to the code: beside every atomic access to a shared word, a
// comment names the step of the model that it is, or the reason why it is none, and each step is
// one access.
func TestModelIsOfTheCode(t *testing.T) {
	seen := map[string]string{}
	for _, a := range accesses(t) {
		switch here := a.step; {
		case here == "":
			t.Errorf(
				"%s: %s is not in the model: name its step in a comment, \"model: NAME\", or say \"model: none: WHY\"",
				a.where, a.what)
		case strings.HasPrefix(here, "none: "):
		case !slices.ContainsFunc(steps[:], func(s modelStep) bool { return s.name == here && !s.absent }):
			t.Errorf("%s: the model has no step %s", a.where, here)
		case seen[here] != "":
			t.Errorf("%s: step %s is %s already", a.where, here, seen[here])
		default:
			seen[here] = a.where
		}
	}
	for _, s := range steps {
		if s.name != "" && !s.absent && seen[s.name] == "" {
			t.Errorf("step %s of the model is nowhere in the code", s.name)
		}
	}
	t.Logf("%d places", len(seen))
}

type access struct{ where, what, step string }

// accesses returns the atomic accesses to shared words in this package, with the comments of their
// lines.
func accesses(t *testing.T) (all []access) {
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		require.NoError(t, err)
		comments := map[int]string{}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				comments[set.Position(comment.Pos()).Line] = comment.Text
			}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(
				[]string{"Load", "Store", "Add", "CompareAndSwap", "Swap", "RingOne"}, method.Sel.Name) {
				return true
			}
			word, ok := method.X.(*ast.SelectorExpr)
			if !ok || !slices.Contains(sharedWords, word.Sel.Name) {
				return true
			}
			line := set.Position(call.Pos()).Line
			here := access{where: fmt.Sprintf("%s:%d", name, line), what: word.Sel.Name + "." + method.Sel.Name}
			// A comment names the steps of a line in the order of their accesses.
			if _, text, _ := strings.Cut(comments[line], "model: "); strings.HasPrefix(text, "none: ") {
				here.step = text
			} else {
				here.step, comments[line], _ = strings.Cut(text, ", ")
				comments[line] = "model: " + comments[line]
			}
			all = append(all, here)
			return true
		})
	}
	return all
}
