package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

var rewrite = flag.Bool("rewrite", false, "write the generated pages of docs, and the help texts of testdata, anew")

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(root(), args, &out)
	return out.String(), err
}

// narrow checks that a text fits on a terminal.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
}

// visible calls f with every command that the help names.
func visible(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			visible(sub, f)
		}
	}
}

// The help of each command is in testdata/help, fits on a terminal, and is the same by help and
// --help.
func TestHelp(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2") // --jobs of verify
	listed := map[string]bool{}
	visible(root(), func(c *cobra.Command) {
		words := strings.Fields(c.CommandPath())[1:]
		out, err := execute(t, append(words, "--help")...)
		require.NoError(t, err)
		helped, err := execute(t, append([]string{"help"}, words...)...)
		require.NoError(t, err)
		require.Equal(t, out, helped)
		require.True(t, strings.HasPrefix(out, "usage: "+c.CommandPath()), out)
		narrow(t, out)
		path := filepath.Join("testdata", "help", strings.Join(append([]string{"goccl"}, words...), "-")+".txt")
		golden(t, path, out)
		listed[path] = true
	})
	files, err := filepath.Glob("testdata/help/*")
	require.NoError(t, err)
	for _, path := range files {
		require.Contains(t, listed, path, "of no command")
	}
	for _, args := range []string{"", "help", "--help", "help help", "-h"} {
		out, err := execute(t, strings.Fields(args)...)
		require.NoError(t, err)
		require.Contains(t, out, "usage: goccl", args)
	}
	out, err := execute(t, "--version")
	require.NoError(t, err)
	require.Contains(t, out, ccl.Version)
	out, err = execute(t, "version")
	require.NoError(t, err)
	require.Equal(t, ccl.Version+"\n", out)
}

// A flag means the same in all commands: it has the same short form, and takes a value or not.
func TestOneNameAFlag(t *testing.T) {
	type form struct {
		short string
		on    bool
	}
	forms := map[string]form{}
	visible(root(), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			mine := form{f.Shorthand, f.Value.Type() == "bool"}
			if f.Name == "ranks" {
				mine.short = "" // run -n, as other launchers have it
			}
			if other, seen := forms[f.Name]; seen {
				require.Equal(t, other, mine, "--%s of %s", f.Name, c.CommandPath())
			}
			forms[f.Name] = mine
		})
	})
	for _, other := range []string{"coll", "collective", "collectives", "min", "max", "sizes", "out", "roads", "n"} {
		require.NotContains(t, forms, other)
	}
	for _, name := range []string{"op", "ranks", "size", "transport", "json", "output"} {
		require.Contains(t, forms, name)
	}
}

// A misunderstood command line has an exit status of its own, and prints nothing among the results.
func TestMisuse(t *testing.T) {
	for args, words := range map[string]string{
		"pan":                            `unknown command "pan"; there are run, bench, plan, verify, sim, tune, flight, top, drill, doctor, topo, options, version, completion, man, help; did you mean plan?`,
		"pan --ranks 2":                  `unknown command "pan"`,
		"plan shw --ranks 2":             "did you mean show?",
		"plan shw":                       "did you mean show?",
		"plan list --no":                 "unknown flag: --no; see goccl help plan list",
		"plan list a b":                  `usage: goccl plan list [COLLECTIVE], got ["a" "b"]; see goccl help plan list`,
		"plan show":                      "usage: goccl plan show PLAN, got []; see goccl help plan show",
		"plan draw a b":                  "usage: goccl plan draw PLAN, got",
		"plan export --ranks":            "flag needs an argument: --ranks; see goccl help plan export",
		"plan draw --ranks x":            "--ranks x: want a whole number; see goccl help plan draw",
		"plan draw -o":                   "flag needs an argument: 'o' in -o; see goccl help plan draw",
		"plan verify x":                  "verify is no command of plan: it is goccl verify",
		"version x":                      `goccl version takes no arguments, got ["x"]`,
		"options x":                      `goccl options takes no arguments, got ["x"]`,
		"doctor x y":                     `goccl doctor takes no arguments, got ["x" "y"]`,
		"tune measure x":                 `takes no arguments, got ["x"]`,
		"help shw":                       `unknown command "shw"`,
		"help plan shw":                  `unknown command of plan "shw"`,
		"tune --fit":                     "unknown flag: --fit; see goccl help tune",
		"help version x":                 `goccl version has no commands, got "x"`,
		"completion tcsh":                `completion needs bash, zsh or fish, got ["tcsh"]`,
		"man":                            "usage: goccl man FOLDER, got []",
		"plan import x":                  `unknown command of plan "import"; there are list, show, draw, export`,
		"sim x":                          "takes no arguments",
		"sim --gamma x":                  "--gamma x: time",
		"verify --x":                     "unknown flag: --x",
		"bench --x":                      "unknown flag: --x",
		"bench --rank 2":                 "unknown flag: --rank; did you mean --ranks?; see goccl help bench",
		"bench --ranks 0":                "--ranks 0: want 1 to 256; see goccl help bench",
		"--nonsense":                     "unknown flag: --nonsense; see goccl help",
		"plan show all_reduce --ranks 0": "--ranks 0: want 1 to 65536",
	} {
		out, err := execute(t, strings.Fields(args)...)
		require.ErrorContains(t, err, words, args)
		require.Equal(t, 2, cli.Status(err), args)
		require.Empty(t, out, args)
	}
	_, err := execute(t, "flight", "/no/such/folder")
	require.Equal(t, 1, cli.Status(err))
}

// The manual pages of all commands are written.
func TestMan(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "man1")
	_, err := execute(t, "man", folder)
	require.NoError(t, err)
	visible(root(), func(c *cobra.Command) {
		if c.Name() == "help" {
			return
		}
		page, err := os.ReadFile(filepath.Join(folder, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		require.NoError(t, err)
		require.Contains(t, string(page), ".SH NAME")
	})
}

// docs/options.md contains what ccl.OptionHelp says.
func TestOptionsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Options\n\nEnvironment variables, read when a group is made. `goccl.Options` sets the same for one " +
		"group from Python.\nAn unknown `GOCCL_` variable is an error. `goccl options` prints this page.\n\n" +
		"Where the first group of a process decides, a later group that asks for something else runs with what there " +
		"is, and a\nWARN names both values. In Go these are the `NodeOptions` that `NewNode` gets, all others are " +
		"`GroupOptions`.\n")
	printed, err := execute(t, "options")
	require.NoError(t, err)
	subject := ""
	for _, o := range ccl.OptionHelp() {
		if o.Subject != subject {
			subject = o.Subject
			page.WriteString("\n## " + subject + "\n\n| variable | default | meaning |\n|---|---|---|\n")
			require.Contains(t, printed, "\n"+subject+"\n")
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", o.Name, o.Default, o.Doc)
		require.Contains(t, printed, "\n  "+o.Name)
	}
	golden(t, docs+"/options.md", page.String())
	narrow(t, printed)
}
