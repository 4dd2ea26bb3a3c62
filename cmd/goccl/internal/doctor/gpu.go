package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/nvml"
)

// gpus is what the doctor asks about GPUs.
type gpus struct {
	driver func() (cuda.Driver, error)
	links  func() (*nvml.Library, error)
	sysfs  string // /sys
}

// findings describes the GPUs of this host, which of them reach each other, and by which route a
// group on them moves its collectives. No driver is no mistake.
func (g *gpus) findings(opts ccl.Options) []topo.Finding {
	d, err := g.driver()
	if err != nil && strings.Contains(err.Error(), "was not found") {
		return []topo.Finding{{Name: "GPU", State: topo.Info, Value: "no GPU driver: tensors stay on the CPU"}}
	}
	var devices []cuda.Info
	if err == nil {
		devices, err = d.Devices()
	}
	if err != nil {
		return []topo.Finding{{Name: "GPU", State: topo.Missing, Value: err.Error(), Hint: "tensors stay on the CPU"}}
	}
	findings := []topo.Finding{{Name: "GPU driver", State: topo.OK,
		Value: fmt.Sprintf("CUDA %d.%d, %d devices", d.Version()/1000, d.Version()%1000/10, len(devices))}}
	if len(devices) == 0 {
		return findings
	}
	links, err := g.links()
	if err == nil {
		defer links.Close()
	} else {
		links = nil
	}
	for _, info := range devices {
		findings = append(findings, g.device(info, links))
	}
	if len(devices) > 1 {
		for _, info := range devices {
			findings = append(findings, peers(d, info, devices, links))
		}
	}
	route, crowded := routeFinding(d, devices, opts)
	return append(findings, route, queuesFinding(crowded))
}

// device describes a GPU.
func (g *gpus) device(info cuda.Info, links *nvml.Library) topo.Finding {
	found := topo.Finding{Name: fmt.Sprint("GPU ", info.Index), State: topo.OK}
	found.Value = fmt.Sprintf("%s, %s, compute capability %d.%d, %d MiB", info.Name, info.Bus, info.Major, info.Minor,
		info.Bytes>>20)
	node, err := os.ReadFile(filepath.Join(g.sysfs, "bus/pci/devices", info.Bus, "numa_node"))
	if number := strings.TrimSpace(string(node)); err == nil && number != "-1" {
		found.Value += ", NUMA node " + number
	}
	if links != nil {
		if to, err := links.Links(info.Bus); err == nil && len(to) > 0 {
			total := 0
			for _, n := range to {
				total += n
			}
			found.Value += fmt.Sprintf(", %d NVLinks to %s", total, strings.Join(slices.Sorted(maps.Keys(to)), " "))
		}
	}
	for _, each := range []struct {
		has  bool
		hint string
	}{
		{info.Words, "its streams cannot wait for words of 64 bits, so groups cannot be on it"},
		{info.Registers, "memory of the host cannot be registered, so groups cannot be on it"},
		{info.Shares, "its memory cannot be shared with other processes: windows are in memory of the host"},
	} {
		if !each.has {
			found.State, found.Hint = topo.Missing, each.hint
			break
		}
	}
	return found
}

// peers says which other devices a device reaches, and by what way.
func peers(d cuda.Driver, info cuda.Info, all []cuda.Info, links *nvml.Library) topo.Finding {
	found := topo.Finding{Name: fmt.Sprintf("GPU %d reaches", info.Index), State: topo.OK}
	c, err := d.Retain(info.Index)
	if err != nil {
		found.State, found.Value = topo.Missing, err.Error()
		return found
	}
	defer c.Release()
	if err := c.Enter(false); err != nil {
		found.State, found.Value = topo.Missing, err.Error()
		return found
	}
	defer c.Leave()
	var reached, apart []string
	for _, other := range all {
		if other.Index == info.Index {
			continue
		}
		way := wayTo(links, info.Bus, other.Bus)
		if reaches, err := c.Reaches(other.Index); err == nil && reaches {
			reached = append(reached, strconv.Itoa(other.Index)+way)
		} else {
			apart = append(apart, strconv.Itoa(other.Index)+way)
		}
	}
	found.Value = strings.Join(reached, ", ")
	if len(apart) > 0 {
		found.State, found.Value = topo.Info, strings.TrimPrefix(found.Value+"; not "+strings.Join(apart, ", "), "; ")
		found.Hint = "windows of groups with these devices are in memory of the host"
	}
	return found
}

// wayTo says how a device is linked to another one, if the library knows.
func wayTo(links *nvml.Library, from, to string) string {
	if links == nil {
		return ""
	}
	if all, err := links.Links(from); err == nil && all[to] > 0 {
		return fmt.Sprintf(" (%d NVLinks)", all[to])
	}
	if between, err := links.Between(from, to); err == nil && between != "" {
		return " (" + between + ")"
	}
	return ""
}

// routeFinding makes a group with a rank on each device, or two on a single one, and says by which
// route it moves its collectives.
//
// crowded is what Group.Crowded says.
func routeFinding(d cuda.Driver, devices []cuda.Info, opts ccl.Options) (found topo.Finding, crowded bool) {
	found = topo.Finding{Name: "GPU route", State: topo.OK}
	route, crowded, err := routeOf(d, devices, opts)
	if err != nil {
		found.State, found.Value = topo.Missing, err.Error()
		found.Hint = "groups with these options (GOCCL_CUDA_ROUTE) do not join on these devices"
		return found, false
	}
	found.Value = route
	return found, crowded
}

// queuesFinding says how many hardware queues a process has, and whether what a program computes
// is held up while a group waits: a stream that waits holds up the others in its queue.
func queuesFinding(crowded bool) topo.Finding {
	const variable = "CUDA_DEVICE_MAX_CONNECTIONS"
	found := topo.Finding{Name: "GPU queues", State: topo.OK}
	set := os.Getenv(variable)
	if found.Value = variable + "=" + set; set == "" {
		found.State, found.Value = topo.Info, variable+" is not set: a process has 8 hardware queues"
		found.Hint = "with 32 (import of goccl sets it if CUDA has not begun) a late rank holds up less of what is computed"
	}
	if crowded {
		found.State, found.Value = topo.Info, found.Value+"; a group that waits holds up the default stream"
		found.Hint = "set it to 32 before CUDA starts, unless something else needs few queues"
	}
	return found
}

func routeOf(d cuda.Driver, devices []cuda.Info, opts ccl.Options) (route string, crowded bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	ranks := max(2, len(devices))
	node, comms, err := ccl.Local(ctx, ranks, opts.GroupOptions)
	if err != nil {
		return "", false, err
	}
	groups, errs := make([]*ccl.DeviceGroup, ranks), make([]error, ranks)
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			device := devices[rank%len(devices)].Index
			if groups[rank], errs[rank] = joinOn(comms[rank], d, device, opts); errs[rank] != nil {
				comms[rank].Abort(errs[rank].Error()) // the others wait for this rank
			}
		})
	}
	all.Wait()
	err = errors.Join(errs...)
	if err != nil {
		return "", false, errors.Join(err, node.Close())
	}
	for _, g := range groups {
		crowded = crowded || g.Crowded()
	}
	return groups[0].Route().String(), crowded, node.Close()
}

// joinOn makes a rank one of a group on devices.
func joinOn(comm *ccl.Communicator, d cuda.Driver, device int, opts ccl.Options) (*ccl.DeviceGroup, error) {
	c, err := d.Retain(device)
	if err != nil {
		return nil, err
	}
	window, err := ccl.NewDeviceWindow(c, opts.GroupOptions, comm.Size())
	if err != nil {
		return nil, errors.Join(err, c.Release())
	}
	group, err := comm.OnDevice(c, window)
	if err != nil {
		return nil, errors.Join(err, c.Release())
	}
	return group, nil
}
