package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rules lists all rules, each with the reason that its errors print.
var rules = []struct {
	name, why string
	check     func(*module) []finding
}{
	{"layers",
		"arrows point downward only, from cmd to dtype (layers_test.go); move the code or pass the value down",
		checkLayers},
	{"cgo", "only cabi has import \"C\": everything below builds and is tested with CGO_ENABLED=0",
		importRule(cgoOutsideCABI)},
	{"unix",
		"only transport/*, internal/live, internal/mem, internal/park, ccl/topo/probe and internal/netlab talk to the kernel: the rest is the same on every platform",
		importRule(unixElsewhere)},
	{"testify", "testify is for _test.go files: a library drags no assertions into its users' builds",
		importRule(testifyInLibrary)},
	{"people", "only cmd has libraries for people: libgoccl links what a rank needs", importRule(libraryForPeople)},
	{"algorithms",
		"only ccl, ccl/tune and cmd pick algorithms: whatever else runs, runs a plan, and no collective is coded beside it",
		importRule(algorithmsKnown)},
	{"fabrics", "pgbackend and cabi see groups, not the paths that bytes take: package ccl puts those together",
		importRule(fabricsKnown)},
	{"environment",
		"variables set from Python are invisible to Go: ccl/environment.go reads them for Go programs, and passes options down",
		checkEnvironment},
	{"exit", "a library returns errors; the process belongs to somebody else", checkExit},
	{"print",
		"standard output belongs to the training program; errors are returned, traces have their own writer",
		checkPrint},
	{"interpreter",
		"a new instruction is written once in the compiler, once in the interpreter and once in what proves its programs",
		checkInterpreter},
	{"opcodes",
		"on devices one loop tells opcodes apart: what becomes of them is said by its sinks",
		checkOpcodes},
	{"kinds",
		"what reads plans asks plan.Kinds what a step does: a new kind is a row there, and a case where steps run",
		checkKinds},
	{"hosts",
		"which ranks share a host is asked of topo.Group, which all ranks have alike, and not passed beside it",
		checkHosts},
	{"words", "an error is read by people who do not know the inside: it says what was seen, in the words of the glossary",
		checkWords},
	{"sleep", "a thread that sleeps anywhere else needs a proof of its own that no wake-up is lost", checkSleep},
	{"unsafe",
		"addresses and what is done to them are in memory.go: elsewhere a slip is a plain error",
		checkUnsafe},
	{"package doc", "a reader should learn from the package comment what a package is for", checkPackageDoc},
	{"package name", "a name says what is inside, and these say nothing", checkPackageName},
	{"generated",
		"the file names of generated code start with z, and its header says Code generated … DO NOT EDIT.",
		checkGenerated},
	{"stages",
		"a test that no stage of make test runs proves nothing: name its folder in the Makefile, in a stage of ci/budget.txt",
		checkStages},
	{"length", "a file is about one thing: one that needs a map has become two", checkLength},
	{"width", "two files fit beside each other, and a comment beside its code", checkWidth},
	{"glossary", "a word of the glossary leads to the code where it lives: this has been moved or renamed", checkGlossary},
	{"index", "a reader looks for the question in the list at the top: one line for each heading, in order", checkIndex},
	{"machine", "the repository is read on other machines: no path or word of the one it was written on", checkMachine},
}

func TestRules(t *testing.T) {
	m := loadRepository(t)
	if len(m.files) < 20 {
		t.Fatalf("found %d Go files: the repository is not where it is looked for", len(m.files))
	}
	for _, rule := range rules {
		t.Run(strings.ReplaceAll(rule.name, " ", "_"), func(t *testing.T) {
			for _, found := range rule.check(m) {
				t.Errorf("%s\n\t(%s)", found, rule.why)
			}
		})
	}
}

// library reports whether the file is linked into other people's programs. Commands and generators
// are not.
func (f *goFile) library() bool {
	return !f.test && !within(f.dir, "cmd") && (f.ast.Name.Name != "main" || within(f.dir, "cabi"))
}

func checkEnvironment(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		if f.test || within(f.dir, "cmd", "internal/scratch") || f.path == "ccl/environment.go" {
			continue
		}
		for _, pkg := range []string{"os", "syscall", "golang.org/x/sys/unix"} {
			all = append(all, f.uses(pkg,
				"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv", "Clearenv")...)
		}
	}
	return all
}

func checkExit(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		if f.library() {
			all = slices.Concat(all, f.uses("os", "Exit"), f.uses("syscall", "Exit"),
				f.uses("log", "Fatal", "Fatalf", "Fatalln"))
		}
	}
	return all
}

func checkPrint(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		if !f.library() {
			continue
		}
		all = slices.Concat(all, f.uses("fmt", "Print", "Printf", "Println"),
			f.uses("log", "Print", "Printf", "Println"))
		ast.Inspect(f.ast, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				if name, ok := call.Fun.(*ast.Ident); ok && (name.Name == "print" || name.Name == "println") {
					all = append(all, finding{f.path, f.line(call), "builtin " + name.Name})
				}
			}
			return true
		})
	}
	return all
}

// checkHosts finds parameters and fields that list the ranks of each host.
func checkHosts(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		if within(f.dir, "ccl/topo") {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			field, ok := node.(*ast.Field)
			if !ok || types.ExprString(field.Type) != "[][]int" {
				return true
			}
			for _, name := range field.Names {
				if strings.EqualFold(name.Name, "hosts") {
					all = append(all, finding{f.path, f.line(name), name.Name + " [][]int"})
				}
			}
			return true
		})
	}
	return all
}

// innerWords are of no use to a person who reads an error: names of Go, and what only the executor
// and the transports count.
var innerWords = regexp.MustCompile(`\bsession\b|\bConnect\b|\bgoroutine\b|\bnetpoll|\bplan %0?4?x|\bstep %d\.%d|` +
	`\b(Options|Config|Session|Peer|Call|Link|Group)\.[A-Z]`)

// checkWords finds them in the texts of errors.
func checkWords(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		if f.test || !within(f.dir, "ccl", "internal", "transport", "pgbackend", "cuda/group", "cabi") ||
			within(f.dir, "ccl/verify", "transport/transporttest", "transport/rdma/verbs") {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || !slices.Contains([]string{"fault.New", "fault.Peer", "fault.Wrap", "fmt.Sprintf"}, types.ExprString(call.Fun)) {
				return true
			}
			for _, arg := range call.Args {
				ast.Inspect(arg, func(node ast.Node) bool {
					if text, ok := node.(*ast.BasicLit); ok && innerWords.MatchString(text.Value) {
						all = append(all, finding{f.path, f.line(text), innerWords.FindString(text.Value)})
					}
					return true
				})
			}
			return true
		})
	}
	return all
}

// checkInterpreter finds switches over instructions in the executor and the compiler, except for
// the necessary ones.
func checkInterpreter(m *module) []finding {
	compiler := []string{"fit", "appendSteps"}
	return append(inFunctions(m, "ccl/exec", []string{"runLane"}, overInstructions),
		inFunctions(m, "ccl/program", compiler, overInstructions)...)
}

// overInstructions reports a node that is a switch over instructions.
func overInstructions(node ast.Node) string {
	s, ok := node.(*ast.SwitchStmt)
	if !ok {
		return ""
	}
	tag, ok := s.Tag.(*ast.SelectorExpr)
	if ok && tag.Sel.Name == "Op" && mentions(s.Body, "OpSignal", "OpWait", "OpCopy", "OpSend", "OpRecv", "OpPut") {
		return "a switch over " + tag.Sel.Name
	}
	return ""
}

// checkOpcodes finds places in the code of devices that name opcodes, except for the necessary one.
func checkOpcodes(m *module) []finding {
	return inFunctions(m, "cuda", []string{"Emit"}, func(node ast.Node) string {
		s, ok := node.(*ast.SelectorExpr)
		if !ok || len(s.Sel.Name) < 3 || s.Sel.Name[:2] != "Op" || !ast.IsExported(s.Sel.Name[2:]) {
			return ""
		}
		if pkg, _ := s.X.(*ast.Ident); pkg != nil && pkg.Name == "program" {
			return "the opcode " + s.Sel.Name
		}
		return ""
	})
}

// executesSteps has, by folder, the functions that do what a step says, and those that read and
// write its text.
var executesSteps = map[string][]string{
	"ccl/plan": {"oneStep", "append"}, "ccl/plan/reference": {"Step"}, "ccl/program": {"addStep"},
	"ccl/verify": {"act"}, "ccl/sim": {"try"}, "ccl/draw": {"step"},
}

var stepKinds = []string{"Copy", "Reduce", "Send", "Recv", "RecvReduce", "Put", "Get", "GetReduce", "Signal", "Wait",
	"Packet", "Loop"}

// checkKinds finds places that name kinds of steps to tell them apart, except for the necessary
// ones. A copy is the one kind that may have no effect, and a loop is no step.
func checkKinds(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		kind := func(e ast.Expr, except ...string) bool {
			name, ok := e.(*ast.Ident)
			if s, selects := e.(*ast.SelectorExpr); selects {
				pkg, _ := s.X.(*ast.Ident)
				name, ok = s.Sel, pkg != nil && pkg.Name == "plan"
			} else if f.dir != "ccl/plan" {
				return false
			}
			return ok && slices.Contains(stepKinds, name.Name) && !slices.Contains(except, name.Name)
		}
		all = append(all, f.inFunctions(executesSteps[f.dir], func(node ast.Node) string {
			switch n := node.(type) {
			case *ast.CaseClause:
				if slices.ContainsFunc(n.List, func(e ast.Expr) bool { return kind(e) }) {
					return "a case of kinds of steps"
				}
			case *ast.BinaryExpr:
				if n.Op != token.EQL && n.Op != token.NEQ {
					return ""
				}
				if kind(n.X, "Copy", "Loop") || kind(n.Y, "Copy", "Loop") {
					return "a comparison with a kind of step"
				}
			}
			return ""
		})...)
	}
	return all
}

// checkSleep finds places in the executor where a thread sleeps, except for the one in rest.
func checkSleep(m *module) []finding {
	return inFunctions(m, "ccl/exec", []string{"rest"}, func(node ast.Node) string {
		if call, ok := node.(*ast.CallExpr); ok {
			if to, ok := call.Fun.(*ast.SelectorExpr); ok {
				pkg, _ := to.X.(*ast.Ident)
				if to.Sel.Name == "Sleep" || to.Sel.Name == "Wait" && pkg != nil && pkg.Name == "park" {
					return "a call of " + to.Sel.Name
				}
			}
		}
		return ""
	})
}

// checkUnsafe finds files of the executor that import unsafe, except for those that must.
func checkUnsafe(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		if f.test || f.dir != "ccl/exec" || f.path == "ccl/exec/memory.go" {
			continue
		}
		for _, i := range f.ast.Imports {
			if i.Path.Value == `"unsafe"` {
				all = append(all, finding{f.path, f.line(i), "imports unsafe"})
			}
		}
	}
	return all
}

var codeIn = regexp.MustCompile("`([^`]+)`")

// checkGlossary looks for the files, folders and names of Go in the last column of GLOSSARY.md.
func checkGlossary(m *module) []finding {
	places, names := map[string]bool{}, map[string]bool{}
	var glossary textFile
	for _, f := range m.texts {
		for at := f.path; at != "."; at = path.Dir(at) {
			places[at], places[strings.TrimPrefix(at, "ccl/")] = true, true
		}
		if f.path == "GLOSSARY.md" {
			glossary = f
		}
	}
	for _, f := range m.files {
		if !f.test {
			f.declared(func(name string) { names[name], names[f.ast.Name.Name+"."+name] = true, true })
		}
	}
	var all []finding
	for i, line := range strings.Split(string(glossary.text), "\n") {
		columns := strings.Split(strings.Trim(line, "|"), "|")
		for _, found := range codeIn.FindAllStringSubmatch(columns[len(columns)-1], -1) {
			what, _, _ := strings.Cut(found[1], " ")
			if strings.HasPrefix(line, "|") && !places[what] && !names[what] {
				all = append(all, finding{glossary.path, i + 1, "there is no " + what})
			}
		}
	}
	return all
}

// declared calls found with what a file declares: Name, Type.Method and Type.Field.
func (f *goFile) declared(found func(string)) {
	for _, decl := range f.ast.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			name := fn.Name.Name
			if fn.Recv != nil {
				base, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*"), "[")
				name = base + "." + name
			}
			found(name)
			continue
		}
		for _, spec := range decl.(*ast.GenDecl).Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					found(name.Name)
				}
			case *ast.TypeSpec:
				found(s.Name.Name)
				var members *ast.FieldList
				switch t := s.Type.(type) {
				case *ast.StructType:
					members = t.Fields
				case *ast.InterfaceType:
					members = t.Methods
				default:
					continue
				}
				for _, member := range members.List {
					for _, name := range member.Names {
						found(s.Name.Name + "." + name.Name)
					}
				}
			}
		}
	}
}

var linkToHeading = regexp.MustCompile(`^\* \[(.*)\]\(#.*\)$`)

// checkIndex compares the list at the top of RATIONALE.md with its headings.
func checkIndex(m *module) []finding {
	var all []finding
	for _, f := range m.texts {
		if f.path != "RATIONALE.md" {
			continue
		}
		var listed, headings []string
		var lines []int
		for i, line := range strings.Split(string(f.text), "\n") {
			if found := linkToHeading.FindStringSubmatch(line); found != nil && len(headings) == 0 {
				listed = append(listed, found[1])
			}
			if heading, ok := strings.CutPrefix(line, "## "); ok {
				headings, lines = append(headings, heading), append(lines, i+1)
			}
		}
		for i, heading := range headings {
			if i >= len(listed) || listed[i] != heading {
				all = append(all, finding{f.path, lines[i], fmt.Sprintf("line %d of the index is not %q", i+1, heading)})
				break
			}
		}
		if len(listed) > len(headings) {
			all = append(all, finding{f.path, 1, "the index has more lines than there are headings"})
		}
	}
	return all
}

// inFunctions applies find to the functions of a folder, except for the allowed ones. The engine of
// messages does not count as a part of the executor.
func inFunctions(m *module, dir string, allowed []string, find func(ast.Node) string) []finding {
	var all []finding
	for _, f := range m.files {
		if within(f.dir, dir) && !within(f.dir, "ccl/exec/p2p") {
			all = append(all, f.inFunctions(allowed, find)...)
		}
	}
	return all
}

// inFunctions applies find to the functions of a file that is no test, except for the allowed ones.
func (f *goFile) inFunctions(allowed []string, find func(ast.Node) string) []finding {
	var all []finding
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || f.test || slices.Contains(allowed, fn.Name.Name) {
			continue
		}
		ast.Inspect(fn, func(node ast.Node) bool {
			if what := find(node); what != "" {
				all = append(all, finding{f.path, f.line(node), what + " in " + fn.Name.Name})
			}
			return true
		})
	}
	return all
}

// mentions reports whether any of the names occurs in a piece of code.
func mentions(node ast.Node, names ...string) (found bool) {
	ast.Inspect(node, func(node ast.Node) bool {
		name, ok := node.(*ast.Ident)
		found = found || ok && slices.Contains(names, name.Name)
		return !found
	})
	return found
}

func checkPackageDoc(m *module) []finding {
	first, documented := map[string]*goFile{}, map[string]bool{}
	for _, f := range m.files {
		if f.test {
			continue
		}
		if first[f.dir] == nil {
			first[f.dir] = f
		}
		documented[f.dir] = documented[f.dir] || f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != ""
	}
	var all []finding
	for dir, f := range first {
		if !documented[dir] {
			all = append(all, finding{f.path, f.line(f.ast.Name),
				fmt.Sprintf("package %s has no comment in any of its files", dir)})
		}
	}
	return all
}

func checkPackageName(m *module) []finding {
	empty := regexp.MustCompile(`^(utils?|common|helpers?|misc|shared|base)(_test)?$`)
	var all []finding
	for _, f := range m.files {
		if name := f.ast.Name.Name; empty.MatchString(name) || empty.MatchString(path.Base(f.dir)) {
			all = append(all, finding{f.path, f.line(f.ast.Name), "package " + name + " in " + f.dir})
		}
	}
	return all
}

// generatedHeader is the pattern of the go command, for the comment signs of every language here.
var generatedHeader = regexp.MustCompile(`(?m)^\s*(//|#|/\*)\s*Code generated .* DO NOT EDIT\.`)

func checkGenerated(m *module) []finding {
	sources := []string{".go", ".s", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".py", ".pyi"}
	var all []finding
	for _, f := range m.texts {
		if !slices.Contains(sources, path.Ext(f.path)) || strings.Contains(f.path, "/testdata/") {
			continue
		}
		named := strings.HasPrefix(path.Base(f.path), "z")
		header := generatedHeader.Match(f.text[:min(len(f.text), 1024)])
		switch {
		case named && !header:
			all = append(all, finding{f.path, 1, "named like a generated file, but without the header"})
		case header && !named:
			all = append(all, finding{f.path, 1, "has the header of a generated file, but not its name"})
		}
	}
	return all
}

// checkLength finds long files of the library. Those that are generated are tables.
func checkLength(m *module) []finding {
	const most = 600
	var all []finding
	for _, f := range m.texts {
		if path.Ext(f.path) != ".go" || strings.HasSuffix(f.path, "_test.go") || generatedHeader.Match(f.text[:min(len(f.text), 1024)]) {
			continue
		}
		if n := bytes.Count(f.text, []byte("\n")); n > most {
			all = append(all, finding{f.path, most + 1, fmt.Sprintf("has %d lines, at most %d", n, most)})
		}
	}
	return all
}

// checkStages finds Python tests in folders that no stage passes to pytest. Go tests need no check:
// their packages run all of them.
func checkStages(m *module) []finding {
	texts := map[string]string{}
	for _, f := range m.texts {
		texts[f.path] = string(f.text)
	}
	ran := map[string]bool{}
	for line := range strings.Lines(texts["ci/budget.txt"]) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		_, recipe, _ := strings.Cut("\n"+texts["Makefile"], "\n"+words[1]+":")
		recipe, _, _ = strings.Cut(recipe, "\n\n")
		for _, folder := range regexp.MustCompile(`\s(tests/[\w/]+)`).FindAllStringSubmatch(recipe, -1) {
			ran[folder[1]] = true
		}
	}
	var all []finding
	for _, f := range m.texts {
		named, _ := path.Match("test_*.py", path.Base(f.path))
		if named && within(f.path, "tests") && !ran[path.Dir(f.path)] {
			all = append(all, finding{f.path, 1, "no stage runs " + path.Dir(f.path)})
		}
	}
	return all
}

// machineWords is written in pieces, so that this file does not break its own rule.
var machineWords = regexp.MustCompile(`(^|[^\w./~-])/(wo` + `rk|ho` + `me|ro` + `ot|fa` + `rm)/\w` +
	`|/tm` + `p/(bash_jobs|venv|brief)|\b(developer|helper) ses` + `sion\b|\bC` + `EO\b`)

func checkMachine(m *module) []finding {
	var all []finding
	for _, f := range m.texts {
		for index, line := range bytes.Split(f.text, []byte("\n")) {
			if word := machineWords.Find(line); word != nil {
				all = append(all, finding{f.path, index + 1, fmt.Sprintf("says %q", bytes.TrimSpace(word))})
			}
		}
	}
	return all
}
