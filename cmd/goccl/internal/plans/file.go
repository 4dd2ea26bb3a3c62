// Package plans finds the plans that people name on the command line: those of the catalogue, and
// those in files.
package plans

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// Load reads a plan file, text or JSON; - is standard input.
func Load(path string) (*plan.Plan, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "cannot read the plan")
		}
		defer file.Close()
	}
	data, err := io.ReadAll(io.LimitReader(file, plan.MaxFileSize+1))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot read the plan")
	}
	p, err := plan.Load(data)
	if wrong := (*fault.Error)(nil); errors.As(err, &wrong) {
		return nil, fault.New(wrong.Code, "%s: %s", path, wrong.Text)
	}
	return p, err
}

// Verified returns the text of a successful report.
func Verified(r *verify.Report) string {
	return fmt.Sprintf(
		"verified: right result, no deadlock, no race, nothing left over; determinism %v; %d messages, %d rounds",
		r.Determinism, r.Messages, r.Rounds)
}
