package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/topo/network"
)

// flagErrors records that the flag package prints an error. The error is printed once, when main
// ends, and not among the results.
type flagErrors struct{ seen bool }

func (e *flagErrors) Write(text []byte) (int, error) {
	e.seen = true
	return len(text), nil
}

// flags returns the flag set of a verb, or of a verb of plan; its --help prints the usage.
func flags(name string, out io.Writer) *flag.FlagSet {
	set := flag.NewFlagSet("goccl "+name, flag.ContinueOnError)
	wrong := &flagErrors{}
	set.SetOutput(wrong)
	called, _, _ := strings.Cut(name, " --")
	set.Usage = func() {
		if wrong.seen {
			if c, ok := out.(*console); ok {
				c.wrongFlagOf = called
			}
			return
		}
		all := topVerbs()
		for _, v := range planVerbs() {
			v.name = "plan " + v.name
			all = append(all, v)
		}
		for _, v := range all {
			if v.name == called {
				fmt.Fprintf(out, "usage: goccl %s %s\n%s\n", called, v.args, v.doc)
			}
		}
		set.SetOutput(out)
		printFlags(set, out)
	}
	return set
}

// printFlags is flag.PrintDefaults with two dashes, as in all other texts.
func printFlags(set *flag.FlagSet, out io.Writer) {
	set.VisitAll(func(f *flag.Flag) {
		kind, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(out, "  %s\n    \t%s",
			strings.TrimSpace(dashes(f.Name)+" "+kind), strings.ReplaceAll(usage, "\n", "\n    \t"))
		switch f.DefValue {
		case "", "0", "-1", "false": // not set
		default:
			fmt.Fprintf(out, " (default %s)", f.DefValue)
		}
		fmt.Fprintln(out)
	})
}

// dashes returns a flag as it is written on the command line.
func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

var oneDash = regexp.MustCompile(`(: |for flag )-(\w[-\w]+)`)

// wrongFlag returns the flag package's error about a flag of a verb with two dashes, and with a
// reference to the help.
func wrongFlag(err error, verb string) error {
	return misuse{errors.New(oneDash.ReplaceAllString(err.Error(), "$1--$2") + "; see goccl help " + verb)}
}

// mixed parses flags before, between and after the arguments, and returns those.
func mixed(set *flag.FlagSet, args []string) (arguments []string, err error) {
	for {
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		if set.NArg() == 0 {
			return arguments, nil
		}
		arguments = append(arguments, set.Arg(0))
		args = set.Args()[1:]
	}
}

// noArguments refuses arguments of a verb that only has flags.
func noArguments(set *flag.FlagSet) error {
	if set.NArg() == 0 {
		return nil
	}
	return misuse{fmt.Errorf("%s takes no arguments, got %q", set.Name(), set.Args())}
}

// perByte is a flag whose value is the time per byte.
type perByte float64

func (t *perByte) String() string { return strconv.FormatFloat(float64(*t), 'g', -1, 64) }

func (t *perByte) Set(text string) error {
	v, err := network.ParseTime(text)
	*t = perByte(v)
	return err
}
