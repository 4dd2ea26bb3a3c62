//go:build !nodrill

package main

import (
	"github.com/spf13/cobra"

	"github.com/goccl/goccl/cmd/goccl/internal/drill"
)

func drillCommand() *cobra.Command { return drill.Command() }
