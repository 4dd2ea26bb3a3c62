package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccl/goccl/pgbackend/flight"
)

func flightVerb(args []string, out io.Writer) error {
	set := flags("flight", out)
	prefix := set.String("prefix", "", "what the names of the records in a folder begin with, before the rank")
	asJSON := set.Bool("json", false, "print JSON")
	paths, err := mixed(set, args)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return misuse{errors.New("flight needs a folder with records, or the records: goccl flight DIR")}
	}
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
		found, err := flight.Find(path, *prefix)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	report, err := compareRecords(files)
	if err != nil {
		return err
	}
	if *asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = report.Print(out)
	}
	if err == nil && report.Different {
		return told{}
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
			unreadable = append(unreadable, message(err))
			continue
		}
		if other := ranks[r.Rank]; other != "" {
			return nil, misuse{fmt.Errorf("%s and %s are both of rank %d", other, path, r.Rank)}
		}
		ranks[r.Rank] = path
		records = append(records, r)
	}
	if len(records) == 0 {
		return nil, wrong
	}
	return flight.Compare(records, unreadable), nil
}
