package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl"
)

// Options returns the command that prints the options of the library.
func Options() *cobra.Command {
	return &cobra.Command{
		Use: "options", Short: "print the GOCCL_* environment variables, by subject", Args: Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			out, subject := c.OutOrStdout(), ""
			for _, o := range ccl.OptionHelp() {
				if o.Subject != subject {
					subject = o.Subject
					fmt.Fprintf(out, "\n%s\n", subject)
				}
				fmt.Fprint(out, "  ", o.Name)
				if o.Default != "" {
					fmt.Fprintf(out, " (%s)", o.Default)
				}
				fmt.Fprint(out, "\n", Wrap("      "+o.Doc, 6))
			}
			return nil
		},
	}
}

// Version returns the command that prints the version.
func Version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), ccl.Version)
			return err
		},
	}
}
