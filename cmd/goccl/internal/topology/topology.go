// Package topology is goccl topo: what this machine is made of, as a network, and networks from
// files.
package topology

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cuda/nvml"
)

const help = `Without TOPOLOGY it is this machine: its cores, which are the ranks, caches,
memory, bus and devices. What cores and memory carry is measured once, in some
30 ms, and kept. TOPOLOGY is a file, in a form of goccl's or in the XML of NCCL
or hwloc, or one of
  %s`

// noticed is the part by which rates must differ before --compare says so.
const noticed = 0.2

// wanted is what the command line asks for.
type wanted struct {
	from, output, compare string
	json, measure         bool
	head                  string // what there is to say first
}

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use: "topo [TOPOLOGY]", Args: cli.Arguments(0, 1),
		Short: "what this machine is made of, as a network; it prints, draws, writes and compares",
		Long:  fmt.Sprintf(help, strings.Join(network.Kinds(), "\n  ")),
	}
	f := c.Flags()
	output := cli.Flag(f, "o,output", "FILE", "", "write it: as a picture (.svg), as JSON (.json), or in the text form", cli.Text)
	compare := cli.Flag(f, "compare", "TOPOLOGY", "", "print what is different there, rates from a fifth on; the exit "+
		"status is 1 if anything is", cli.Text)
	measure := f.Bool("measure", false, "measure this machine anew")
	asJSON := cli.JSON(f, "one document, which is one of the forms that are read")
	c.RunE = func(c *cobra.Command, args []string) error {
		w := wanted{output: *output, compare: *compare, json: *asJSON, measure: *measure}
		if len(args) > 0 {
			w.from = args[0]
		}
		return w.show(c.OutOrStdout())
	}
	return c
}

func (w *wanted) show(out io.Writer) error {
	t, about, err := w.open()
	if err != nil {
		return err
	}
	if w.output != "" {
		text, err := written(t, w.output)
		if err != nil {
			return err
		}
		return cli.WriteFile(w.output, text, out)
	}
	if w.compare != "" {
		other, err := cli.OpenTopology(w.compare, t.Ranks())
		if err != nil {
			return cli.Misuse{Err: err}
		}
		lines := network.Compare(t, other, noticed)
		if len(lines) == 0 {
			return nil
		}
		if _, err := io.WriteString(out, strings.Join(lines, "\n")+"\n"); err != nil {
			return err
		}
		return cli.Reported{}
	}
	if w.json {
		return t.WriteJSON(out)
	}
	_, err = io.WriteString(out, w.head+printed(t, about))
	return err
}

// open returns the network, and what there is to say of it: that of GOCCL_TOPO is what groups use.
func (w *wanted) open() (t *network.Topology, about string, err error) {
	from := w.from
	if from == "" {
		opts, err := cli.Environment()
		if err != nil {
			return nil, "", err
		}
		if opts.Topo != "" && opts.Topo != network.Off {
			from = opts.Topo
			w.head = fmt.Sprintf("GOCCL_TOPO=%s, which groups use in place of what is found here:\n", from)
		}
	}
	if from == "" {
		return found(w.measure)
	}
	if w.measure {
		return nil, "", cli.Misused("--measure is for this machine, not for %s", from)
	}
	t, err = cli.OpenTopology(from, 0)
	if err != nil {
		return nil, "", cli.Misuse{Err: err}
	}
	return t, "", nil
}

// found returns the network that this machine is.
func found(measure bool) (*network.Topology, string, error) {
	const root = "/"
	host, _ := os.Hostname()
	m := network.Machine{Name: network.Name(cmp.Or(host, "machine")), Parts: probe.Machine(root),
		Devices: probe.Devices(root)}
	if library, err := nvml.Open(); err == nil {
		addLanes(m.Devices, library)
		library.Close()
	}
	get := probe.KeptRates
	if measure {
		get = probe.MeasureRates
	}
	kept := get(cost.Folder())
	m.Rates = kept.Rates
	about := fmt.Sprintf("rates measured %s, at load %.1f: %v", kept.Measured.Format(time.DateTime), kept.Load, m.Rates)
	model, _ := probe.Processor()
	t, err := network.Found(&m)
	return t, strings.TrimSpace(model) + "\n" + about + "\n", err
}

// written returns a network in the form that the end of a file's name says.
func written(t *network.Topology, name string) (string, error) {
	var text strings.Builder
	switch filepath.Ext(name) {
	case ".svg":
		return draw.Topology(t)
	case ".json":
		err := t.WriteJSON(&text)
		return text.String(), err
	}
	err := t.WriteText(&text)
	return text.String(), err
}
