// Package nvml asks NVIDIA's management library, which comes with the driver but not into every
// container, what the driver itself does not tell: which GPUs are linked by NVLink, and what is
// between others. It opens libnvidia-ml.so.1 at run time; nothing depends on it but what people are
// told.
package nvml

import (
	"bytes"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/goccl/goccl/ccl/fault"
)

// Library is an open libnvidia-ml.
type Library struct {
	init     func() int32
	shutdown func() int32
	byBus    func(bus string, device *uintptr) int32
	state    func(device uintptr, link uint32, active *uint32) int32
	remote   func(device uintptr, link uint32, at *address) int32
	ancestor func(a, b uintptr, level *int32) int32
	computes func(device uintptr, major, minor *int32) int32
}

// address is nvmlPciInfo_t.
type address struct {
	_   [16]byte
	_   [5]uint32
	bus [32]byte
}

// mostLinks is NVML_NVLINK_MAX_LINKS.
const mostLinks = 18

// Open opens the library of the driver. Close ends it.
func Open() (*Library, error) { return open("libnvidia-ml.so.1") }

func open(path string) (*Library, error) {
	// The loader keeps the text of an error for the thread that caused it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fault.Wrap(fault.NotSupported, err, "%s was not found", path)
	}
	l := &Library{}
	for name, function := range map[string]any{
		"nvmlInit_v2": &l.init, "nvmlShutdown": &l.shutdown, "nvmlDeviceGetHandleByPciBusId_v2": &l.byBus,
		"nvmlDeviceGetNvLinkState": &l.state, "nvmlDeviceGetNvLinkRemotePciInfo_v2": &l.remote,
		"nvmlDeviceGetTopologyCommonAncestor": &l.ancestor, "nvmlDeviceGetCudaComputeCapability": &l.computes,
	} {
		at, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fault.Wrap(fault.NotSupported, err, "%s has no %s", path, name)
		}
		purego.RegisterFunc(function, at)
	}
	if code := l.init(); code != 0 {
		return nil, fault.New(fault.NotSupported, "nvmlInit_v2 returned %d", code)
	}
	return l, nil
}

// Close gives the library back.
func (l *Library) Close() { l.shutdown() }

// Links returns how many active NVLinks a GPU has to each other place, by the bus addresses of both
// ("0000:65:00.0"). A place is another GPU, or a switch.
func (l *Library) Links(bus string) (map[string]int, error) {
	device, err := l.device(bus)
	if err != nil {
		return nil, err
	}
	links := map[string]int{}
	for link := range uint32(mostLinks) {
		var active uint32
		if l.state(device, link, &active) != 0 || active == 0 { // this link, or NVLink, is not there
			continue
		}
		var to address
		if l.remote(device, link, &to) == 0 {
			links[short(to.bus[:])]++
		}
	}
	return links, nil
}

// Capability returns the compute capability of a GPU, 90 for 9.0: what its NVLinks carry follows
// from that.
func (l *Library) Capability(bus string) (int, error) {
	device, err := l.device(bus)
	if err != nil {
		return 0, err
	}
	var major, minor int32
	if code := l.computes(device, &major, &minor); code != 0 {
		return 0, fault.New(fault.NotSupported, "nvmlDeviceGetCudaComputeCapability returned %d", code)
	}
	return int(10*major + minor), nil
}

// paths says what is between two GPUs, by the level of what they have in common.
var paths = map[int32]string{
	0: "one board", 10: "one PCIe switch", 20: "several PCIe switches", 30: "a PCIe host bridge",
	40: "the host bridges of a NUMA node", 50: "the link between processors",
}

// Between returns what the path by PCIe from a GPU to another one crosses at most.
func (l *Library) Between(a, b string) (string, error) {
	first, err := l.device(a)
	if err != nil {
		return "", err
	}
	second, err := l.device(b)
	if err != nil {
		return "", err
	}
	var level int32
	if code := l.ancestor(first, second, &level); code != 0 {
		return "", fault.New(fault.NotSupported, "nvmlDeviceGetTopologyCommonAncestor returned %d", code)
	}
	return paths[level], nil
}

func (l *Library) device(bus string) (device uintptr, err error) {
	if code := l.byBus(bus, &device); code != 0 {
		return 0, fault.New(fault.NotSupported, "nvmlDeviceGetHandleByPciBusId_v2 of %s returned %d", bus, code)
	}
	return device, nil
}

// short returns an address as the kernel writes it; the library gives the domain eight digits.
func short(text []byte) string {
	before, _, _ := bytes.Cut(text, []byte{0})
	bus := strings.ToLower(string(before))
	if domain, rest, ok := strings.Cut(bus, ":"); ok && len(domain) > 4 {
		return domain[len(domain)-4:] + ":" + rest
	}
	return bus
}
