// Package cli is what the tools of the command line have in common: how commands, flags and their
// values are understood, refused, completed and described, and how results are printed.
package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

// Misuse is the error of a command line that is not understood: an unknown command or flag, too
// many or too few arguments, or a value that is refused.
type Misuse struct{ Err error }

func (m Misuse) Error() string { return m.Err.Error() }
func (m Misuse) Unwrap() error { return m.Err }

// Misused returns a Misuse with a text.
func Misused(format string, args ...any) error { return Misuse{fmt.Errorf(format, args...)} }

// Reported is the error of a command that has already printed what is wrong.
type Reported struct{}

func (Reported) Error() string { return "something is wrong" }

// Ended is the error of a command of the user's, whose exit status becomes that of goccl.
type Ended struct {
	Err    error
	Status int
}

func (e Ended) Error() string { return e.Err.Error() }
func (e Ended) Unwrap() error { return e.Err }

// Status returns the exit status for an error.
func Status(err error) int {
	var ended Ended
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(Misuse)):
		return 2
	case errors.As(err, &ended):
		return ended.Status
	}
	return 1
}

// Message returns the text of an error without the name of the library and without the class
// invalid, which nearly all errors here have.
func Message(err error) string {
	return strings.TrimPrefix(fault.Text(err), fault.Invalid.Error()+": ")
}

// Root returns the command goccl.
func Root(commands ...*cobra.Command) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := Group("goccl", "collective communication: start ranks, measure, inspect plans and the machine", commands...)
	root.Version = ccl.Version
	root.SilenceErrors, root.SilenceUsage, root.DisableAutoGenTag = true, true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolP("help", "h", false, "print this text")
	root.Flags().Bool("version", false, "print the version")
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { printHelp(c, c.OutOrStdout()) })
	root.SetFlagErrorFunc(wrongFlag)
	root.SetHelpCommand(&cobra.Command{
		Use: "help COMMAND", Short: "print what a command does, and its flags",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, _ := root.Find(args)
			if len(rest) > 0 {
				return unknown(c, rest[0])
			}
			return c.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			c, _, _ := root.Find(args)
			return names(c), cobra.ShellCompDirectiveNoFileComp
		},
	})
	each(root, completeFlags)
	return root
}

// Execute runs a command line. What it prints goes to out.
func Execute(root *cobra.Command, args []string, out io.Writer) error {
	root.SetArgs(args)
	root.SetOut(out)
	c, err := root.ExecuteC()
	if err != nil && c.ValidateFlagGroups() != nil { // flags that exclude each other
		return Misuse{err}
	}
	return err
}

// Group returns a command that only has others, and prints its help without one.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknown(c, args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// Internal returns a command that a tool starts itself, in a process of its own.
func Internal(name string, run func(args []string, out io.Writer) error) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error { return run(args, c.OutOrStdout()) }}
}

// each calls f with a command and all below it.
func each(c *cobra.Command, f func(*cobra.Command)) {
	c.Flags().SortFlags = false
	f(c)
	for _, sub := range c.Commands() {
		each(sub, f)
	}
}

// names returns the names of the commands of a group.
func names(group *cobra.Command) (all []string) {
	for _, c := range group.Commands() {
		if !c.Hidden {
			all = append(all, c.Name())
		}
	}
	return all
}

// unknown is the error of a word that is no command of a group.
func unknown(group *cobra.Command, word string) error {
	what := "command"
	if group.HasParent() {
		what += " of " + group.Name()
		if slices.Contains(names(group.Root()), word) {
			return Misused("%s is no %s: it is goccl %s", word, what, word)
		}
	}
	all := names(group)
	if len(all) == 0 {
		return Misused("%s has no commands, got %q", group.CommandPath(), word)
	}
	return Misused("unknown %s %q; there are %s%s", what, word, strings.Join(all, ", "), humanize.DidYouMean(word, all))
}

// Arguments refuses fewer or more arguments than a command takes.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0 && most == 0:
			return Misused("%s takes no arguments, got %q; see %s", c.CommandPath(), args, helpOf(c))
		case len(args) < least || len(args) > most:
			return Misused("usage: %s, got %q; see %s", usage(c), args, helpOf(c))
		}
		return nil
	}
}

// usage returns the form of a command line.
func usage(c *cobra.Command) string { return c.CommandPath() + strings.TrimPrefix(c.Use, c.Name()) }

// helpOf returns the command line that prints the help of a command.
func helpOf(c *cobra.Command) string {
	return c.Root().Name() + " help" + strings.TrimPrefix(c.CommandPath(), c.Root().Name())
}

// wrongFlag is the error of a flag that is unknown, or whose value is not understood.
func wrongFlag(c *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	what := err.Error()
	switch {
	case len(names(c)) > 0 && c.Flags().NArg() > 0: // goccl bnch --ranks 2
		return unknown(c, c.Flags().Arg(0))
	case errors.As(err, &missing):
		var all []string
		c.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name) })
		what += humanize.DidYouMean("--"+missing.GetSpecifiedName(), all)
	case errors.As(err, &invalid):
		what = fmt.Sprintf("--%s %s: %s", invalid.GetFlag().Name, invalid.GetValue(), Message(invalid.Unwrap()))
	}
	return Misused("%s; see %s", what, helpOf(c))
}

// Environment returns the options set by the GOCCL_* variables.
func Environment() (ccl.Options, error) {
	opts, err := ccl.OptionsFromEnv()
	if err != nil {
		err = Misuse{err}
	}
	return opts, err
}
