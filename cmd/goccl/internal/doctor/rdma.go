package doctor

import (
	"errors"
	"fmt"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// adaptersFound describes the RDMA adapters of this host, which ports of them groups use, and
// whether enough memory may be pinned. No adapter is no mistake.
func adaptersFound(open func() (verbs.Library, error), opts ccl.Options) []topo.Finding {
	library, err := open()
	var devices []verbs.Device
	if err == nil {
		devices, err = library.Devices()
	}
	switch {
	case errors.Is(err, fault.NotSupported) || err == nil && len(devices) == 0:
		value := "no adapter: ranks of other hosts are reached by TCP"
		if err != nil {
			value += "; " + fault.Text(err)
		}
		return []topo.Finding{{Name: "RDMA", State: topo.Info, Value: value}}
	case err != nil:
		return []topo.Finding{{Name: "RDMA", State: topo.Missing, Value: fault.Text(err), Hint: "TCP is used"}}
	}
	wishes, err := opts.Adapters()
	if err != nil {
		return []topo.Finding{{Name: "RDMA", State: topo.Missing, Value: fault.Text(err)}}
	}
	wishes.Seat = ccl.SeatOf("", 0)
	chosen, why := rdma.Select(devices, wishes)
	var findings []topo.Finding
	for _, d := range devices {
		for _, p := range d.Ports {
			name := fmt.Sprintf("RDMA %s:%d", d.Name, p.Number)
			f := topo.Finding{Name: name, State: topo.Info, Value: portText(d, p)}
			for i, c := range chosen {
				if c.Device == d.Name && c.Port.Number == p.Number {
					f.Value += fmt.Sprintf(", GID %d (%v, %v)", c.GID.Index, c.GID.Kind, c.GID.Addr())
					if c.Why != "" {
						f.Value += ", " + c.Why
					}
					switch {
					case c.Slow() != "":
						f.Value += ", not used: " + c.Slow()
					case i < rdma.MostPorts:
						f.State = topo.OK
						f.Value += ", used"
					}
				}
			}
			findings = append(findings, f)
		}
	}
	if why != nil {
		return append(findings, topo.Finding{Name: "RDMA", State: topo.Missing,
			Value: fault.Text(why), Hint: "TCP is used"})
	}
	return append(findings, pinnable(library, chosen[0].Device))
}

func portText(d verbs.Device, p verbs.Port) string {
	kind := "InfiniBand"
	if p.Ethernet {
		kind = "RoCE"
	}
	text := fmt.Sprintf("%s, %s, MTU %d", p.State, kind, p.MTU)
	if p.Rate > 0 {
		text += fmt.Sprintf(", %g Gbit/s", float64(p.Rate)/1000)
	}
	if d.PCI != "" {
		text += ", " + d.PCI
	}
	if d.Node >= 0 {
		text += fmt.Sprintf(", NUMA node %d", d.Node)
	}
	return text
}

// pinnable registers as much memory as the pools of a process take.
func pinnable(library verbs.Library, device string) topo.Finding {
	const bytes = 2 * rdma.DefaultPool
	f := topo.Finding{Name: "RDMA memory", State: topo.OK, Value: fmt.Sprintf("%d MiB can be pinned", bytes>>20)}
	err := func() error {
		context, err := library.Open(device)
		if err != nil {
			return err
		}
		block, err := mem.Alloc(bytes)
		if err != nil {
			return errors.Join(err, context.Close())
		}
		region, err := context.Register(block.Bytes(), false)
		if err == nil {
			err = region.Close()
		}
		return errors.Join(err, block.Free(), context.Close())
	}()
	if err != nil {
		f.State, f.Value, f.Hint = topo.Missing, fault.Text(err), "TCP is used"
	}
	return f
}
