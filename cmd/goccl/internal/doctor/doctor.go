// Package doctor is goccl doctor: what the machine offers, and how fast paths between hosts are.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cuda/driver"
	"github.com/goccl/goccl/cuda/nvml"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/tcp"
)

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Args: cli.Arguments(0, 0),
		Short: "what this machine offers and what is missing, or how fast the paths between hosts are",
	}
	f := c.Flags()
	python := f.String("python", "", "the `PYTHON` whose torch and goccl are looked at (the one that goccl was "+
		"installed with, else python3)")
	paths := f.Bool("paths", false, "measure the paths between hosts, started once on each of them as rank by a launcher, "+
		"as goccl run -n 1 --hosts 2 --host 0 --address A --port P -- goccl doctor --paths")
	asJSON := cli.JSON(f, "one document")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out := c.OutOrStdout()
		if *paths {
			return measureHosts(*asJSON, out)
		}
		findings := examine(cmp.Or(*python, pythonBeside()))
		if *asJSON {
			return cli.PrintJSON(out, findings)
		}
		return printFindings(findings, out)
	}
	return c
}

// pythonBeside returns the interpreter in the folder of this program, where pip puts scripts.
func pythonBeside() string {
	if own, err := os.Executable(); err == nil {
		python := filepath.Join(filepath.Dir(own), "python3")
		if _, err := os.Stat(python); err == nil {
			return python
		}
	}
	return "python3"
}

func examine(python string) []topo.Finding {
	findings := []topo.Finding{{Name: "goccl", State: topo.OK, Value: ccl.Version}}
	findings = append(findings, environmentFinding())
	findings = append(findings, pythonFindings(python)...)
	findings = append(findings, probe.Host()...)
	if opts, err := cli.Environment(); err == nil {
		machine := gpus{driver: driver.Open, links: nvml.Open, sysfs: "/sys"}
		findings = append(findings, congestionFinding(opts.SocketCongestion))
		findings = append(findings, machine.findings(opts)...)
		findings = append(findings, adaptersFound(verbs.Open, opts)...)
		findings = append(findings, adaptersOfGPUs(driver.Open, verbs.Open, opts)...)
	}
	return findings
}

func printFindings(findings []topo.Finding, out io.Writer) error {
	var text strings.Builder
	table := cli.Table(&text)
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.State, f.Name, f.Value)
		if f.Hint != "" {
			fmt.Fprintf(table, "\t\t→ %s\n", f.Hint)
		}
	}
	table.Flush()
	all := text.String()
	if cli.Coloured(out) {
		green, red := "\n\x1b[32mok\x1b[0m ", "\n\x1b[31mmissing\x1b[0m "
		all = strings.NewReplacer("\nok ", green, "\nmissing ", red).Replace("\n" + all)[1:]
	}
	_, err := io.WriteString(out, all)
	return err
}

func environmentFinding() topo.Finding {
	opts, err := cli.Environment()
	if err != nil {
		return topo.Finding{Name: "options", State: topo.Missing, Value: err.Error(), Hint: "goccl options lists them"}
	}
	value := strings.ReplaceAll(strings.TrimSpace(opts.String()), "\n", " ")
	if value == "" {
		value = "defaults"
	}
	return topo.Finding{Name: "options", State: topo.OK, Value: value}
}

// congestionFinding says which congestion control TCP connections have.
func congestionFinding(choice string) topo.Finding {
	found := topo.Finding{Name: "congestion control", State: topo.OK}
	system, short, err := tcp.Congestion(choice)
	switch {
	case err != nil:
		found.State, found.Value = topo.Missing, fault.Text(err)
	case system == "":
		found.State, found.Value = topo.Info, "not read on this system"
	case system == short:
		found.Value = system
	case choice != "":
		found.Value = fmt.Sprintf("%s by GOCCL_SOCKET_CONGESTION; the system's is %s", short, system)
	default:
		found.Value = fmt.Sprintf("%s; %s for TCP connections whose round trip is below %v", system, short, tcp.ShortPath)
	}
	return found
}

// asked is the program that reports facts about a Python installation, as JSON.
const asked = `
import sys, json
found = {"python": sys.version.split()[0]}
try:
    import torch
    found["torch"] = torch.__version__
    found["cuda"] = str(torch.version.cuda)
    import goccl
    found["goccl"] = goccl.__version__
    from goccl import _build
    found["built_for"] = ", ".join(_build.torch.values())
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
`

func pythonFindings(python string) []topo.Finding {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, python, "-c", asked).Output()
	var found map[string]string
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return []topo.Finding{{
			Name: "python", State: topo.Missing,
			Value: fmt.Sprintf("%s: %v", python, err), Hint: "name one by --python",
		}}
	}
	findings := []topo.Finding{{Name: "python", State: topo.OK, Value: found["python"]}}
	if found["torch"] == "" {
		return append(findings, topo.Finding{
			Name: "torch", State: topo.Missing, Value: found["error"], Hint: python + " -m pip install torch",
		})
	}
	findings = append(findings, topo.Finding{
		Name: "torch", State: topo.OK, Value: found["torch"] + ", CUDA " + found["cuda"],
	})
	shim := topo.Finding{
		Name: "shim", State: topo.OK,
		Value: fmt.Sprintf("goccl %s, built for torch %s", found["goccl"], found["built_for"]),
	}
	if found["error"] != "" {
		shim.State, shim.Value, shim.Hint = topo.Missing, found["error"],
			python+" -m pip install --no-build-isolation . (in goccl's source)"
	}
	return append(findings, shim)
}
