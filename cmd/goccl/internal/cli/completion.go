package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/goccl/goccl/ccl"
)

// bashWords has completion in bash work without the package bash-completion, whose functions these
// are.
const bashWords = `declare -F _get_comp_words_by_ref >/dev/null || _get_comp_words_by_ref() {
    words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
    cur=${words[cword]} prev=${words[cword-1]}
}
declare -F __ltrim_colon_completions >/dev/null || __ltrim_colon_completions() { :; }
`

const completionHelp = `Load them in the configuration of your shell:
  bash: source <(goccl completion bash)
  zsh:  source <(goccl completion zsh)
  fish: goccl completion fish | source`

// Completion returns the command that prints what completes commands, flags and values in a shell.
func Completion() *cobra.Command {
	shells := map[string]func(root *cobra.Command, out io.Writer) error{
		"bash": func(root *cobra.Command, out io.Writer) error {
			if _, err := io.WriteString(out, bashWords); err != nil {
				return err
			}
			return root.GenBashCompletionV2(out, true)
		},
		"zsh":  func(root *cobra.Command, out io.Writer) error { return root.GenZshCompletion(out) },
		"fish": func(root *cobra.Command, out io.Writer) error { return root.GenFishCompletion(out, true) },
	}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "print completions of commands, flags and values for a shell",
		Long: completionHelp, ValidArgs: []string{"bash", "zsh", "fish"}, Args: Arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if shells[args[0]] == nil {
				return Misused("completion needs bash, zsh or fish, got %q", args)
			}
			return shells[args[0]](c.Root(), c.OutOrStdout())
		},
	}
}

// Man returns the command that writes manual pages.
func Man() *cobra.Command {
	c := &cobra.Command{
		Use: "man FOLDER", Short: "write manual pages into a folder, as share/man/man1", Args: Arguments(1, 1),
	}
	markdown := c.Flags().Bool("markdown", false, "in Markdown, for a site")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		if *markdown {
			c.Root().DisableAutoGenTag = true
			return doc.GenMarkdownTree(c.Root(), args[0])
		}
		return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: "goccl " + ccl.Version}, args[0])
	}
	return c
}
