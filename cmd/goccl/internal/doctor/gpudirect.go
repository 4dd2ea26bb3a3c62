package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/gpudirect"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// adaptersOfGPUs says for each GPU by which way the adapters that groups may use read its memory.
// Without a GPU or an adapter it says nothing.
func adaptersOfGPUs(driver func() (cuda.Driver, error), open func() (verbs.Library, error),
	opts ccl.Options) []topo.Finding {
	d, err := driver()
	if err != nil {
		return nil
	}
	devices, err := d.Devices()
	if err != nil || len(devices) == 0 {
		return nil
	}
	library, err := open()
	if err != nil {
		return nil
	}
	wishes, err := opts.Adapters()
	if err != nil {
		return nil
	}
	chosen, err := rdma.Find(library, wishes)
	if err != nil {
		return nil
	}
	var findings []topo.Finding
	for _, info := range devices {
		var ways []string
		ports := map[string][]string{} // by way
		adapter, way := "", ""
		for _, c := range chosen {
			if c.Device != adapter { // the ports of an adapter are alike
				adapter, way = c.Device, wayOf(d, info.Index, library, c.Device)
			}
			if ports[way] == nil {
				ways = append(ways, way)
			}
			ports[way] = append(ports[way], c.String())
		}
		for _, way := range ways {
			findings = append(findings, topo.Finding{State: topo.Info, Value: way,
				Name: fmt.Sprintf("GPU %d with %s", info.Index, strings.Join(ports[way], ", "))})
		}
	}
	return findings
}

// wayOf tries how an adapter reads memory of a device.
func wayOf(d cuda.Driver, device int, library verbs.Library, adapter string) string {
	way, err := func() (way gpudirect.Way, err error) {
		c, err := d.Retain(device)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, c.Release()) }()
		if err := c.Enter(false); err != nil {
			return 0, err
		}
		defer c.Leave()
		a, err := library.Open(adapter)
		if err != nil {
			return 0, err
		}
		table := gpudirect.New(c, a)
		way, err = table.Probe()
		return way, errors.Join(err, table.Close(), a.Close())
	}()
	if err != nil {
		return strings.TrimPrefix(fault.Text(err), "not supported: ")
	}
	return fmt.Sprintf("%v, which nothing uses yet: messages of GPUs are staged", way)
}
