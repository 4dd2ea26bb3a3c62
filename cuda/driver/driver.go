package driver

import (
	"bytes"
	"strings"
	"sync"

	"github.com/goccl/goccl/cuda"
)

// Open returns NVIDIA's driver. The first call opens and initialises it; later ones return the same
// result.
var Open = sync.OnceValues(func() (cuda.Driver, error) { return open("libcuda.so.1") })

// driver implements cuda.Driver.
type driver struct {
	*library
	modes modes
}

// open opens the driver with the given library.
func open(path string) (cuda.Driver, error) {
	l, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	if err := l.cuInit(0); err != nil {
		return nil, err
	}
	return &driver{library: l}, nil
}

func (d *driver) Version() int { return d.version }

func (d *driver) Devices() ([]cuda.Info, error) {
	var count int32
	if err := d.cuDeviceGetCount(&count); err != nil {
		return nil, err
	}
	all := make([]cuda.Info, count)
	for index := range all {
		_, info, err := d.device(index)
		if err != nil {
			return nil, err
		}
		all[index] = info
	}
	return all, nil
}

func (d *driver) Retain(index int) (cuda.Context, error) {
	device, info, err := d.device(index)
	if err != nil {
		return nil, err
	}
	c := &context{library: d.library, modes: &d.modes, device: device, info: info}
	var supported int32
	c.forAdapters = d.cuDeviceGetAttribute(&supported, adaptersSupported, device) == nil && supported != 0
	if err := d.cuDevicePrimaryCtxRetain(&c.handle, device); err != nil {
		return nil, err
	}
	return c, nil
}

// device returns the handle of a device and what it is.
func (d *driver) device(index int) (device int32, info cuda.Info, err error) {
	if err = d.cuDeviceGet(&device, int32(index)); err != nil {
		return device, info, err
	}
	info.Index = index
	var text [256]byte
	if err = d.cuDeviceGetName(&text[0], int32(len(text)), device); err != nil {
		return device, info, err
	}
	info.Name = beforeZero(text[:])
	if err = d.cuDeviceGetUuid(&info.UUID, device); err != nil {
		return device, info, err
	}
	if err = d.cuDeviceGetPCIBusId(&text[0], int32(len(text)), device); err != nil {
		return device, info, err
	}
	info.Bus = strings.ToLower(beforeZero(text[:])) // as the kernel writes it
	var bytes uintptr
	if err = d.cuDeviceTotalMem(&bytes, device); err != nil {
		return device, info, err
	}
	info.Bytes = int64(bytes)

	attribute := func(number int32) int32 {
		var value int32
		if err == nil {
			err = d.cuDeviceGetAttribute(&value, number, device)
		}
		return value
	}
	info.Major, info.Minor = int(attribute(computeMajor)), int(attribute(computeMinor))
	info.Processors = int(attribute(processors))
	// A driver without the entry point does not know the attribute either.
	info.Words = d.has(entryStreamBatchMemOp) && attribute(words64) != 0
	info.Registers = d.has(entryMemHostRegister) && attribute(hostRegisters) != 0
	info.Shares = d.has(entryMemExportToShareableHandle) && d.has(entryMemImportFromShareableHandle) &&
		attribute(descriptorsSupported) != 0
	info.DMABuf = d.has(entryMemGetHandleForAddressRange) && attribute(dmaBufSupported) != 0
	return device, info, err
}

// beforeZero returns a text of C.
func beforeZero(text []byte) string {
	before, _, _ := bytes.Cut(text, []byte{0})
	return string(before)
}
