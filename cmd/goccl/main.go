// Command goccl is the library's command line: it starts ranks, measures, and inspects plans and
// the machine. Each tool is a package of its own.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/cmd/goccl/internal/bench"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/doctor"
	"github.com/goccl/goccl/cmd/goccl/internal/flight"
	"github.com/goccl/goccl/cmd/goccl/internal/plan"
	"github.com/goccl/goccl/cmd/goccl/internal/run"
	"github.com/goccl/goccl/cmd/goccl/internal/sim"
	"github.com/goccl/goccl/cmd/goccl/internal/top"
	"github.com/goccl/goccl/cmd/goccl/internal/topology"
	"github.com/goccl/goccl/cmd/goccl/internal/tune"
	"github.com/goccl/goccl/cmd/goccl/internal/verify"
)

func root() *cobra.Command {
	return cli.Root(
		run.Command(), bench.Command(), plan.Command(), verify.Command(), sim.Command(), tune.Command(),
		flight.Command(), top.Command(), drillCommand(), doctor.Command(), topology.Command(),
		cli.Options(), cli.Version(), cli.Completion(), cli.Man(),
	)
}

func main() {
	err := cli.Execute(root(), os.Args[1:], os.Stdout)
	if err != nil && !errors.As(err, new(cli.Reported)) {
		fmt.Fprintln(os.Stderr, "goccl:", cli.Message(err))
	}
	os.Exit(cli.Status(err))
}
