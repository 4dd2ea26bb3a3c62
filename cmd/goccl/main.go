// Command goccl is the library's command line: measure, look at plans, look at the machine.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccl/goccl/ccl"
)

// verb is one subcommand.
type verb struct {
	name, args, doc string
	run             func(args []string, out io.Writer) error
}

func verbs() []verb {
	return []verb{
		{"bench", "[flags]", "time a collective over ranks that it starts itself", bench},
		{"plan", "list | show | draw | export | import …", "what algorithms there are, and what each rank does", planVerb},
		{"verify", "FILE | --all [--ranks 1-64]", "prove that plans are right", verifyVerb},
		{"sim", "--topo T --coll C --size S [flags]", "how long algorithms take on a network, and which wins where", simVerb},
		{"tune", "--fit [flags]", "measure what the network costs, and how well that predicts an all-reduce", tuneVerb},
		{"doctor", "[--json]", "what this machine offers, and what is missing", doctor},
		{"options", "", "the GOCCL_* environment variables", options},
		{"version", "", "the version", func(_ []string, out io.Writer) error { fmt.Fprintln(out, ccl.Version); return nil }},
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == benchRankVerb {
		exit(benchRank(os.Args[2:]))
	}
	exit(dispatch(os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err != nil && err != flag.ErrHelp {
		fmt.Fprintln(os.Stderr, "goccl:", strings.TrimPrefix(err.Error(), "goccl: "))
		os.Exit(1)
	}
	os.Exit(0)
}

func dispatch(args []string, out io.Writer) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprintln(out, "usage: goccl VERB …      goccl VERB --help for its flags")
		for _, v := range verbs() {
			fmt.Fprintf(out, "  %-8s %-44s %s\n", v.name, v.args, v.doc)
		}
		return nil
	}
	var names []string
	for _, v := range verbs() {
		if v.name == args[0] {
			return v.run(args[1:], out)
		}
		names = append(names, v.name)
	}
	return fmt.Errorf("unknown verb %q; there are %s", args[0], strings.Join(names, ", "))
}

// flags makes a flag set that prints its own errors once, as errors.
func flags(name string, out io.Writer) *flag.FlagSet {
	set := flag.NewFlagSet("goccl "+name, flag.ContinueOnError)
	set.SetOutput(out)
	return set
}

// environment is the options that the GOCCL_* variables give.
func environment() (ccl.Options, error) {
	var lines []string
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, "GOCCL_") {
			lines = append(lines, pair)
		}
	}
	return ccl.ParseOptions(strings.Join(lines, "\n"))
}

func options(_ []string, out io.Writer) error {
	_, err := io.WriteString(out, ccl.OptionHelp())
	return err
}
