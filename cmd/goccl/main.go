// Command goccl is the library's command line: it measures, and inspects plans and the machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

// verb is one subcommand.
type verb struct {
	name, args, doc string
	run             func(args []string, out io.Writer) error
}

func topVerbs() []verb {
	return []verb{
		{"run", "-n RANKS [flags] -- CMD …", "start a command once for each rank, and end all when one fails", launchVerb},
		{"bench", "[flags]", "time a collective over ranks that it starts itself", bench},
		{"plan", "list | show | draw | export …", "what algorithms there are, and what each rank does", planVerb},
		{
			"verify", "FILE | --all [--ranks 1-64]",
			"prove that plans are right: that of a file (- is standard input), or all of the catalogue", verifyVerb,
		},
		{
			"sim", "--topo T --coll C --size S [flags]",
			"how long algorithms take on a network, and which wins where", simVerb,
		},
		{
			"tune", "--fit | --measure [flags]",
			"measure what the network costs and how well that predicts an all-reduce, or which algorithm is fastest where",
			tuneVerb,
		},
		{
			"flight", "DIR | FILE … [--json]",
			"what the ranks of a job were in, from the records that they have left, and where they first differ",
			flightVerb,
		},
		{"top", "[PID …] [--once] [--json]", "what the ranks on this host are doing now, by process or launcher", topVerb},
		{
			"drill", "[--all] [flags]",
			"inject faults (death, hang, mismatched call …) into real processes and check the error of every rank", drillVerb,
		},
		{"doctor", "[--json] [--hosts]", "what this machine offers and what is missing, or how fast hosts are", doctor},
		{"options", "", "the GOCCL_* environment variables", options},
		{"version", "", "the version", version},
	}
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] { // processes that verbs start
		case benchRankVerb:
			exit(benchRank(os.Args[2:]))
		case drillRankVerb:
			exit(drillRank(os.Args[2:]))
		case relayVerb:
			exit(relayForDrill())
		case holderVerb:
			hold()
			return
		}
	}
	exit(dispatch(os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if errors.As(err, new(told)) {
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "goccl:", message(err))
	if errors.As(err, new(misuse)) {
		os.Exit(2)
	}
	os.Exit(1)
}

// message returns the text of an error without the name of the library and without the class
// invalid, which nearly all errors here have.
func message(err error) string {
	return strings.TrimPrefix(fault.Text(err), fault.Invalid.Error()+": ")
}

// misuse is the error of an invalid command line: an unknown verb or flag, or too many or too few
// arguments.
type misuse struct{ error }

// told is the error of a verb that has already printed what is wrong.
type told struct{}

func (told) Error() string { return "something is wrong" }

func dispatch(args []string, out io.Writer) error {
	if len(args) > 1 && wantsHelp(args[0]) && !wantsHelp(args[1]) { // help plan draw means plan draw --help
		return dispatch(append(args[1:], "--help"), out)
	}
	if len(args) == 0 || wantsHelp(args[0]) {
		fmt.Fprintln(out, "usage: goccl VERB …      goccl help VERB for its flags")
		printVerbs(out, topVerbs())
		fmt.Fprintln(out, "The exit status is 0, 1 if something is wrong, 2 if the command line is not understood.")
		return nil
	}
	c := &console{Writer: out}
	err := runVerb("verb", topVerbs(), args, c)
	if err != nil && c.wrongFlagOf != "" {
		return wrongFlag(err, c.wrongFlagOf)
	}
	return err
}

func wantsHelp(arg string) bool {
	return arg == "help" || arg == "-h" || arg == "-help" || arg == "--help"
}

func printVerbs(out io.Writer, verbs []verb) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, v := range verbs {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", v.name, v.args, v.doc)
	}
	table.Flush()
}

// runVerb runs the verb named by the first argument.
func runVerb(what string, verbs []verb, args []string, out io.Writer) error {
	var names []string
	for _, v := range verbs {
		if v.name == args[0] {
			return v.run(args[1:], out)
		}
		names = append(names, v.name)
	}
	return misuse{fmt.Errorf("unknown %s %q; there are %s%s",
		what, args[0], strings.Join(names, ", "), humanize.DidYouMean(args[0], names))}
}

// console is where verbs print. It records which verb was given a wrong flag, because the flag
// package has no error type for that.
type console struct {
	io.Writer
	wrongFlagOf string
}

// environment returns the options set by the GOCCL_* variables.
func environment() (ccl.Options, error) {
	var lines []string
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, "GOCCL_") {
			lines = append(lines, pair)
		}
	}
	return ccl.ParseOptions(strings.Join(lines, "\n"))
}

func options(args []string, out io.Writer) error { return tell("options", ccl.OptionHelp(), args, out) }

func version(args []string, out io.Writer) error { return tell("version", ccl.Version+"\n", args, out) }

// tell implements a verb that only prints a text.
func tell(name, text string, args []string, out io.Writer) error {
	set := flags(name, out)
	if err := set.Parse(args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	_, err := io.WriteString(out, text)
	return err
}
