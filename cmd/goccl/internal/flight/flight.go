// Package flight is goccl flight: it compares the records that the ranks of a job have left.
package flight

import (
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/flight"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "flight FOLDER | FILE …",
		Short: "what the ranks of a job were in, from the records that they have left, and where they first differ",
		Args:  cli.Arguments(1, math.MaxInt),
	}
	prefix := cli.Flag(c.Flags(), "prefix", "TEXT", "",
		"what the names of the records in a folder begin with, before the rank", cli.Text)
	asJSON := cli.JSON(c.Flags(), "one document")
	c.RunE = func(c *cobra.Command, paths []string) error {
		return compare(paths, *prefix, *asJSON, c.OutOrStdout())
	}
	return c
}

func compare(paths []string, prefix string, asJSON bool, out io.Writer) error {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		found, err := flight.Find(path, prefix)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	report, err := compareRecords(files)
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.PrintJSON(out, report)
	} else {
		err = report.Print(out)
	}
	if err == nil && report.Different {
		return cli.Reported{}
	}
	return err
}

// compareRecords reads files. Those that cannot be read are named in the report, unless there are
// no others.
func compareRecords(files []string) (*flight.Report, error) {
	var records []*flight.Record
	var unreadable []string
	var wrong error
	ranks := map[int]string{}
	for _, path := range files {
		r, err := flight.ReadFile(path)
		if err != nil {
			wrong = err
			unreadable = append(unreadable, cli.Message(err))
			continue
		}
		if other := ranks[r.Rank]; other != "" {
			return nil, cli.Misused("%s and %s are both of rank %d", other, path, r.Rank)
		}
		ranks[r.Rank] = path
		records = append(records, r)
	}
	if len(records) == 0 {
		return nil, wrong
	}
	return flight.Compare(records, unreadable), nil
}
