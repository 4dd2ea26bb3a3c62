package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// columns is how wide texts are.
const columns = 80

// printHelp prints what a command does, the commands below it and its flags.
func printHelp(c *cobra.Command, out io.Writer) {
	flags := c.LocalNonPersistentFlags()
	flags.SortFlags = false
	use := usage(c)
	switch {
	case len(names(c)) > 0:
		use += " COMMAND …"
	case flags.HasAvailableFlags() && !strings.Contains(use, "[flags]"):
		use += " [flags]"
	}
	fmt.Fprint(out, Wrap("usage: "+use, 7), "\n", Wrap(c.Short, 0))
	if c.Long != "" {
		fmt.Fprint(out, "\n", Wrap(c.Long, 0))
	}
	if all := names(c); len(all) > 0 {
		fmt.Fprint(out, "\ncommands:\n")
		widest := 0
		for _, name := range all {
			widest = max(widest, len(name))
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				fmt.Fprint(out, Wrap(fmt.Sprintf("  %-*s  %s", widest, sub.Name(), sub.Short), widest+4))
			}
		}
	}
	if flags.HasAvailableFlags() {
		fmt.Fprint(out, "\nflags:\n", flags.FlagUsagesWrapped(columns))
	}
	if !c.HasParent() {
		fmt.Fprint(out, "\n", Wrap("goccl help COMMAND has its flags. The exit status is 0, 1 if something is wrong, 2 if the "+
			"command line or a value is not understood; that of run is that of its command.", 0))
	}
}

// Wrap breaks the lines of a text at the width of a terminal, between words, and within longer ones
// after a comma. What follows a break is indented, at least as the line is.
func Wrap(text string, indent int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		at, space := 0, ""
		in := max(indent, len(line)-len(strings.TrimLeft(line, " ")))
		for word := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), " ") {
			parts := []string{word}
			if utf8.RuneCountInString(word) > columns-in {
				parts = strings.SplitAfter(word, ",")
			}
			for _, part := range parts {
				if n := utf8.RuneCountInString(part); at > in && at+len(space)+n > columns {
					b.WriteString("\n")
					at, space = 0, strings.Repeat(" ", in)
				}
				b.WriteString(space + part)
				at, space = at+len(space)+utf8.RuneCountInString(part), ""
			}
			space = " "
		}
		b.WriteString("\n")
	}
	return b.String()
}
