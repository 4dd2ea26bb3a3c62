//go:build nodrill

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

const noDrill = "this build is without the drill; in the source of goccl: go run ./cmd/goccl drill"

// drillCommand stands for the drill in what pip installs.
func drillCommand() *cobra.Command {
	return &cobra.Command{Use: "drill", Short: noDrill, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errors.New(noDrill) }}
}
