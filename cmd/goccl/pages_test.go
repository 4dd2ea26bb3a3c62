package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

// page is a page of the repository, with what it shows as code.
type page struct {
	path, text string
	code       []code
}

// code is a line of a code block, or what stands in backquotes in a text.
type code struct {
	line  int
	text  string
	block bool
}

// pagesOfUsers returns the pages that show commands. CHANGELOG.md may show those of former times.
func pagesOfUsers(t *testing.T) (pages []page) {
	t.Helper()
	for _, pattern := range []string{
		"../../*.md", docs + "/*.md", docs + "/*/*.md", "../../examples/*.md", "../../tests/*/*.md",
	} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			if filepath.Base(path) == "CHANGELOG.md" {
				continue
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			pages = append(pages, page{strings.TrimPrefix(path, "../../"), string(text), codeOf(string(text))})
		}
	}
	return pages
}

var span = regexp.MustCompile("`([^`]+)`")

// codeOf returns the code of a page. Lines of blocks that end with a backslash are joined with the
// next one; so are the lines of a paragraph, where what is in backquotes may be broken.
func codeOf(text string) (all []code) {
	var fence, paragraph string // the language of a block, with its mark
	var start int
	blank, indented := true, false
	endParagraph := func() {
		for _, m := range span.FindAllStringSubmatch(paragraph, -1) {
			all = append(all, code{start, strings.ReplaceAll(m[1], `\|`, "|"), false})
		}
		paragraph = ""
	}
	joined := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			endParagraph()
			if fence == "" {
				fence = trimmed
			} else {
				fence = ""
			}
			continue
		}
		indented = fence == "" && strings.HasPrefix(line, "    ") && (blank || indented)
		blank = trimmed == ""
		switch {
		case fence != "" && fence != "```" && fence != "```sh":
		case fence != "" || indented:
			if joined {
				last := &all[len(all)-1]
				last.text = strings.TrimSuffix(last.text, `\`) + trimmed
			} else {
				all = append(all, code{i + 1, trimmed, true})
			}
			joined = strings.HasSuffix(trimmed, `\`)
		case blank, strings.HasPrefix(line, "|"), strings.HasPrefix(line, "#"):
			endParagraph()
			paragraph, start = line, i+1
			endParagraph()
		default:
			if paragraph == "" {
				start = i + 1
			}
			paragraph += trimmed + " "
		}
	}
	endParagraph()
	return all
}

// commandsIn takes a line apart as a shell does: into commands, and these into words. What is in
// quotes is part of a word, a comment is left out, and so are the files that output goes to.
func commandsIn(line string) (commands [][]string) {
	var words []string
	word, quote, inside, depth := "", rune(0), false, 0
	end := func() {
		if inside {
			words = append(words, word)
		}
		word, inside = "", false
	}
	for _, r := range line {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inside = r, true
		case r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '(' || depth > 0 && r == ')': // $(…)
			word, inside = word+string(r), true
			if r == '(' {
				depth++
			} else {
				depth--
			}
		case depth > 0:
			word += string(r)
		case r == ' ':
			end()
		case r == ';':
			end()
			commands, words = append(commands, words), nil
		case r == '#' && !inside:
			return append(commands, words)
		default:
			word, inside = word+string(r), true
		}
	}
	end()
	commands = append(commands, words)
	var all [][]string
	for _, words := range commands {
		for len(words) > 0 {
			end := slices.IndexFunc(words, func(w string) bool { return w == "|" || w == "&&" || w == "||" })
			command := words
			if end >= 0 {
				command, words = words[:end], words[end+1:]
			} else {
				words = nil
			}
			if to := slices.IndexFunc(command, func(w string) bool { return w == ">" || w == "<" }); to >= 0 {
				command = command[:to]
			}
			all = append(all, command)
		}
	}
	return all
}

var (
	prompt     = regexp.MustCompile(`^(\w*\$ |!)`)
	assignment = regexp.MustCompile(`^([A-Z_][A-Z0-9_]*)=(.*)$`)
	// A word that the reader replaces: FILE, COLLECTIVE/ALGORITHM, $RANK, or something left out.
	placeholder = regexp.MustCompile(`^[A-Z][A-Z_]*(/[A-Z_]+)?$|[…$]`)
	ofHere      = regexp.MustCompile(
		`^(\./)?(cabi|ccl|ci|cmd|cuda|docs|examples|internal|pgbackend|python|tests|transport)/[\w./-]+$`)
	programs = strings.Fields("goccl make go python python3 torchrun mpirun mpiexec srun bash sh exec export")
)

// checker checks the commands of one page.
type checker struct {
	t       *testing.T
	targets string // the Makefile
	scripts string // and what reads variables of the command line of make
	top     string // the folder of the repository
	folder  string // where commands are run
	at      code
	counts  map[string]int
}

func (c *checker) wrong(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("line %d: %s: %s", c.at.line, c.at.text, fmt.Sprintf(format, args...))
}

// line checks what may be a command.
func (c *checker) line(text string) {
	if message.MatchString(text) {
		return
	}
	c.file(text)
	for _, words := range commandsIn(prompt.ReplaceAllString(text, "")) {
		first := slices.IndexFunc(words, func(w string) bool { return !assignment.MatchString(w) })
		if first >= 0 && slices.Contains(programs, words[first]) || first < 0 && len(words) > 0 {
			c.command(words)
		}
	}
}

// message is what goccl writes itself.
var message = regexp.MustCompile(`(^|\s)goccl (INFO|WARN|TRACE|pid|plan format) `)

// command checks a command, with those that are in its arguments.
func (c *checker) command(words []string) {
	for _, w := range words {
		m := assignment.FindStringSubmatch(w)
		if m != nil && strings.HasPrefix(m[1], "GOCCL_") && m[1] != "GOCCL_BUILD" && m[2] != "" &&
			!placeholder.MatchString(m[2]) {
			if _, err := ccl.ParseOptions(w); err != nil {
				c.wrong("%v", err)
			}
			c.counts["settings"]++
		}
	}
	var env []string
	for len(words) > 0 && (assignment.MatchString(words[0]) || words[0] == "exec") {
		env, words = append(env, words[0]), words[1:]
	}
	if len(words) == 0 {
		return
	}
	switch words[0] {
	case "goccl":
		c.goccl(env, words[1:])
		return
	case "make":
		c.make(words[1:])
		return
	case "go":
		c.golang(words[1:])
	}
	for i, w := range words[1:] {
		c.file(w)
		if slices.Contains(programs, w) { // of torchrun, srun or mpirun
			c.command(words[i+1:])
			break
		}
		if strings.Contains(w, " ") { // of bash -c
			c.line(w)
		}
	}
}

// file looks for a file or folder of the repository.
func (c *checker) file(name string) {
	if !ofHere.MatchString(name) {
		return
	}
	if _, err := os.Stat(filepath.Join(c.top, strings.TrimSuffix(name, "/..."))); err != nil {
		c.wrong("there is no %s", name)
	}
	c.counts["files"]++
}

// make checks the targets and variables of make.
func (c *checker) make(words []string) {
	for _, w := range words {
		name, value, assigns := strings.Cut(w, "=")
		switch {
		case strings.Contains(w, "…") && !assigns:
		case assigns && !regexp.MustCompile(`\$[({]?`+name+`\b`).MatchString(c.targets+c.scripts):
			c.wrong("nothing reads %s", name)
		case assigns && name == "STAGES" && value != "all":
			c.make(strings.Fields(value))
		case !assigns && !strings.Contains(c.targets, "\n"+w+":"):
			c.wrong("the Makefile has no target %s", w)
		}
	}
	c.counts["make"]++
}

// golang looks for the tests and benchmarks that the patterns of go test name.
func (c *checker) golang(words []string) {
	if len(words) == 0 || words[0] != "test" {
		return
	}
	folder, patterns := "", []string{}
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "./"):
			folder = w
		case (w == "-run" || w == "-bench") && i+1 < len(words) && words[i+1] != "xxx":
			patterns = append(patterns, words[i+1])
		}
	}
	files, err := filepath.Glob(filepath.Join(c.top, folder, "*_test.go"))
	require.NoError(c.t, err)
	var tests []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(c.t, err)
		tests = append(tests, text...)
	}
	for _, pattern := range patterns {
		if !strings.HasSuffix(folder, "...") && !regexp.MustCompile(`(?m)^func \w*`+pattern).Match(tests) {
			c.wrong("%s has no test %s", folder, pattern)
		}
	}
	c.counts["go test"]++
}

// goccl checks a command line of goccl, and runs it if that is quick and needs nothing else.
func (c *checker) goccl(env, words []string) {
	var then []string
	if end := slices.Index(words, "--"); end >= 0 {
		words, then = words[:end], words[end+1:]
	}
	if len(then) > 0 {
		c.command(then)
	}
	for i, w := range words { // goccl plan list|show
		if choices := strings.Split(w, "|"); len(choices) > 1 {
			for _, choice := range choices {
				c.goccl(env, slices.Concat(words[:i], []string{choice}, words[i+1:]))
			}
			return
		}
	}
	c.counts["goccl"]++
	cmd, rest, err := root().Find(words)
	if err != nil {
		c.wrong("%v", err)
		return
	}
	args, whole := c.flags(cmd, rest)
	whole = whole && !slices.ContainsFunc(args, placeholder.MatchString)
	if c.at.block || len(args) > 0 {
		if err := cmd.ValidateArgs(args); err != nil && !slices.Contains(args, "…") {
			c.wrong("%v", err)
			return
		}
	}
	if whole && c.at.block && cmd.Name() == "run" && len(then) == 0 {
		c.wrong("run needs a command")
	}
	if whole && c.quick(cmd, args) {
		c.run(env, words)
	}
}

// flags checks the flags of a command, and returns its other words, and whether it has no
// placeholder.
func (c *checker) flags(cmd *cobra.Command, words []string) (args []string, whole bool) {
	whole = true
	cmd.InheritedFlags() // has those of the root merged
	for i := 0; i < len(words); i++ {
		name, value, given := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		var f *pflag.Flag
		switch {
		case strings.HasPrefix(words[i], "--"):
			f = cmd.Flags().Lookup(name)
		case strings.HasPrefix(words[i], "-") && len(name) == 1:
			f = cmd.Flags().ShorthandLookup(name)
		case !strings.HasPrefix(words[i], "-"):
			args = append(args, words[i])
			continue
		}
		if f == nil {
			c.wrong("%s has no flag %s", cmd.CommandPath(), words[i])
			return nil, false
		}
		if !given && f.NoOptDefVal != "" {
			continue
		}
		if i++; !given && i < len(words) {
			value = words[i]
		} else if !given {
			whole = false
			if c.at.block {
				c.wrong("%s needs a value", words[i-1])
			}
			continue
		}
		if placeholder.MatchString(value) {
			whole = false
			continue
		}
		if err := f.Value.Set(value); err != nil {
			c.wrong("--%s %s: %v", f.Name, value, err)
		}
		if complete, ok := cmd.GetFlagCompletionFunc(f.Name); ok {
			known, _ := complete(cmd, nil, "")
			for _, one := range strings.Split(value, ",") {
				one, _, _ = strings.Cut(one, ".") // all_reduce by hierarchical.ring, or a file
				if !slices.Contains(known, one) && !strings.Contains(value, one+".") {
					c.wrong("--%s has no %s, only %s", f.Name, one, strings.Join(known, ", "))
				}
			}
		}
	}
	return args, whole
}

// quick reports whether a command of a page is harmless, and takes no more than a second.
func (c *checker) quick(cmd *cobra.Command, args []string) bool {
	switch cmd.CommandPath() {
	case "goccl verify":
		all, _ := cmd.Flags().GetBool("all")
		return !all && len(args) > 0
	case "goccl plan list", "goccl plan show", "goccl plan draw", "goccl plan export":
		return cmd.ValidateArgs(args) == nil
	case "goccl sim", "goccl options", "goccl version", "goccl completion":
		return true
	}
	return false
}

// run runs a command of a page, in the folder where the others of this page were run.
func (c *checker) run(env, words []string) {
	c.t.Chdir(c.folder)
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		c.t.Setenv(name, value)
	}
	out, err := execute(c.t, words...)
	if err != nil || out == "" && !slices.Contains(words, "-o") {
		c.wrong("ends with status %d and prints %q: %v", cli.Status(err), out, err)
	}
	c.counts["run"]++
	if testing.Verbose() {
		c.t.Log("ran: goccl", strings.Join(words, " "))
	}
}

// Commands that pages show are understood by what they call: goccl, make, go test, with their
// flags, values, targets and files. Those of goccl that are quick end well. Files that pages name
// are there.
func TestCommandsOfPages(t *testing.T) {
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	targets, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	var scripts strings.Builder
	for _, pattern := range []string{"../../ci/*", "../../setup.py"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil { // no folder
				scripts.Write(text)
			}
		}
	}
	counts := map[string]int{}
	for _, page := range pagesOfUsers(t) {
		t.Run(page.path, func(t *testing.T) {
			c := &checker{t: t, targets: string(targets), scripts: scripts.String(), top: top, folder: t.TempDir(),
				counts: counts}
			for _, c.at = range page.code {
				c.line(c.at.text)
			}
		})
	}
	t.Log(counts)
	least := map[string]int{"goccl": 50, "run": 5, "make": 50, "go test": 3, "settings": 30, "files": 50}
	for what, least := range least {
		require.GreaterOrEqual(t, counts[what], least, "%s: pages are not read as they are written", what)
	}
}

// variable is a name of the environment that begins as goccl's do; GOCCL_IB_* stands for several.
var variable = regexp.MustCompile(`\bGOCCL_[A-Z0-9_]*\*?`)

// Variables that pages name are options, or in this list.
func TestVariablesOfPages(t *testing.T) {
	known := []string{
		"GOCCL_BUILD", "GOCCL_PREBUILT", // of the import in Python, and of its installation
		"GOCCL_X_SERVICE_HOST", // of Kubernetes
	}
	for _, o := range ccl.OptionHelp() {
		known = append(known, o.Name)
	}
	named := map[string]bool{}
	for _, page := range pagesOfUsers(t) {
		for i, line := range strings.Split(page.text, "\n") {
			for _, name := range variable.FindAllString(line, -1) {
				stem, several := strings.CutSuffix(name, "*")
				if !slices.ContainsFunc(known, func(k string) bool {
					return k == name || (several || stem == "GOCCL_") && strings.HasPrefix(k, stem)
				}) {
					t.Errorf("%s:%d: there is no %s", page.path, i+1, name)
				}
				named[name] = true
			}
		}
	}
	for _, o := range ccl.OptionHelp() {
		require.Contains(t, named, o.Name)
	}
}

// member is a name of package ccl, or of a variable that has one of its types.
var member = regexp.MustCompile(`\b(ccl|comm|Communicator|node|Node|work|Work|opts)\.([A-Z]\w*)`)

// Names of package ccl that pages have as code are there.
func TestNamesOfPages(t *testing.T) {
	top := map[string]bool{}
	files, err := filepath.Glob("../../ccl/*.go")
	require.NoError(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				top[d.Name.Name] = top[d.Name.Name] || d.Recv == nil
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						top[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							top[name.Name] = true
						}
					}
				}
			}
		}
	}
	types := map[string]reflect.Type{
		"comm": reflect.TypeFor[*ccl.Communicator](), "node": reflect.TypeFor[*ccl.Node](),
		"work": reflect.TypeFor[*ccl.Work](), "opts": reflect.TypeFor[*ccl.Options](),
		"Communicator": reflect.TypeFor[*ccl.Communicator](), "Node": reflect.TypeFor[*ccl.Node](),
		"Work": reflect.TypeFor[*ccl.Work](),
	}
	found := 0
	for _, page := range pagesOfUsers(t) {
		for _, code := range page.code {
			for _, m := range member.FindAllStringSubmatch(code.text, -1) {
				there := top[m[2]]
				if of := types[m[1]]; of != nil {
					_, method := of.MethodByName(m[2])
					_, field := of.Elem().FieldByName(m[2])
					there = method || field
				}
				if !there {
					t.Errorf("%s:%d: there is no %s", page.path, code.line, m[0])
				}
				found++
			}
		}
	}
	require.Greater(t, found, 30)
}
