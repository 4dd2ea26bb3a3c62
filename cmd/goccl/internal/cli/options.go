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
			out := c.OutOrStdout()
			for i, group := range ccl.OptionHelp() {
				if i > 0 {
					fmt.Fprintln(out)
				}
				fmt.Fprintln(out, group.Subject)
				for _, o := range group.Options {
					fmt.Fprint(out, "  ", o.Name)
					if o.Default != "" {
						fmt.Fprintf(out, " (%s)", o.Default)
					}
					fmt.Fprint(out, "\n", Wrap("      "+o.Doc, 6))
				}
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
