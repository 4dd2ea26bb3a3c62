package cli

import (
	"encoding/json"
	"io"
	"os"
	"text/tabwriter"
)

// PrintJSON prints one document.
func PrintJSON(out io.Writer, document any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

// PrintLines prints a JSON object a line.
func PrintLines[T any](out io.Writer, rows []T) error {
	encoder := json.NewEncoder(out)
	for _, row := range rows {
		if err := encoder.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

// Table returns a writer of rows whose cells end with a tab.
func Table(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// WriteFile writes text to a file, or to out if the path is -.
func WriteFile(path, text string, out io.Writer) error {
	if path == "-" {
		_, err := io.WriteString(out, text)
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// Terminal reports whether out is a terminal.
func Terminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// Coloured reports whether words may have colours: on a terminal, and unless NO_COLOR is set.
func Coloured(out io.Writer) bool { return os.Getenv("NO_COLOR") == "" && Terminal(out) }
