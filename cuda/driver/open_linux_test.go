package driver

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// refused fails the test unless err is of the class and says all of the words.
func refused(t *testing.T, err error, class fault.Code, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("%v: not of class %v", err, class)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v: does not say %q", err, word)
		}
	}
}

func TestNoLibrary(t *testing.T) {
	_, err := open(filepath.Join(t.TempDir(), "libcuda.so.1"))
	refused(t, err, fault.NotSupported, "libcuda.so.1 was not found", "no NVIDIA driver", "--gpus all",
		"No such file or directory")
}

func TestOtherLibrary(t *testing.T) {
	_, err := open("libc.so.6")
	refused(t, err, fault.NotSupported, "libc.so.6 is not a CUDA driver", "cuDriverGetVersion")
}

func TestOpenKeepsItsResult(t *testing.T) {
	d, err := Open()
	again, errAgain := Open()
	if d != again || err != errAgain {
		t.Errorf("Open returned %v, %v and then %v, %v", d, err, again, errAgain)
	}
	if err != nil && !errors.Is(err, fault.NotSupported) {
		t.Logf("there is a driver, which fails: %v", err)
	}
}

func TestOldDrivers(t *testing.T) {
	_, err := open(newFake(t, 11020).path)
	refused(t, err, fault.NotSupported, "offers CUDA 11.2", "needs 11.3 or later", "update the driver")
	_, err = open(newFake(t, 11030).path)
	refused(t, err, fault.NotSupported, "offers CUDA 11.3", "cuDeviceGetUuid needs 11.4 or later")
}

// TestForms says that each entry point gets its right form, through either form of
// cuGetProcAddress.
func TestForms(t *testing.T) {
	for _, version := range []int{11080, latest} {
		f := newFake(t, version)
		d := f.open()
		if d.Version() != version {
			t.Errorf("version %d, want %d", d.Version(), version)
		}
		must(d.Devices())(t)
		c := f.enter(d, 0)
		s := must(c.NewStream(0))(t)
		r := must(c.Register(pages(t, 1)))(t)
		if err := s.Words([]cuda.WordOp{{At: r.Ptr(), Value: 1}}); err != nil {
			t.Error(err)
		}
		destroy(t, s)
		free(t, r)
		for _, name := range []string{"cuDeviceGetUuid", "cuDeviceTotalMem", "cuCtxPushCurrent", "cuStreamDestroy",
			"cuStreamBatchMemOp", "cuMemHostRegister", "cuMemHostGetDevicePointer"} {
			if f.calls(name) != 0 || f.calls(name+"_v2") == 0 {
				t.Errorf("CUDA %d: %s was called %d times, and its second form %d times", version, name, f.calls(name), f.calls(name+"_v2"))
			}
		}
	}
}

// TestWithoutWords runs with a driver whose stream memory operations have the first form only, and
// which cannot launch.
func TestWithoutWords(t *testing.T) {
	f := newFake(t, 11040)
	d := f.open()
	if info := must(d.Devices())(t)[0]; info.Words || !info.Registers || !info.Shares {
		t.Errorf("%+v", info)
	}
	c := f.enter(d, 0)
	s := must(c.NewStream(0))(t)
	defer destroy(t, s)
	refused(t, s.Words([]cuda.WordOp{{}}), fault.NotSupported, "offers CUDA 11.4",
		"cuStreamBatchMemOp needs 11.7 or later")
	_, err := c.Load(machineCode)
	refused(t, err, fault.NotSupported, "offers CUDA 11.4", "cuLaunchKernelEx needs 11.6 or later")
	if n := f.calls("cuStreamBatchMemOp"); n != 0 {
		t.Errorf("the first form was called %d times", n)
	}
}

func TestMissing(t *testing.T) {
	for _, name := range []string{"cuMemcpyAsync", "cuEventRecord"} { // needed
		f := newFake(t, latest)
		f.hide(name)
		_, err := open(f.path)
		refused(t, err, fault.NotSupported, "offers CUDA 12.4", "has no "+name)
	}
	f := newFake(t, latest)
	f.hide("cuMemCreate")
	f.hide("cuMemExportToShareableHandle")
	d := f.open()
	if must(d.Devices())(t)[0].Shares {
		t.Error("shares without cuMemExportToShareableHandle")
	}
	_, err := f.enter(d, 0).Alloc(1)
	refused(t, err, fault.NotSupported, "has no cuMemCreate")
}

func TestInitFails(t *testing.T) {
	f := newFake(t, latest)
	f.set("init", 100)
	_, err := open(f.path)
	refused(t, err, fault.NotSupported, "cuInit", "CUDA_ERROR_NO_DEVICE", "100")

	f = newFake(t, latest)
	f.set("init", 999) // whose name the fake does not know
	_, err = open(f.path)
	refused(t, err, fault.System, "cuInit", "unknown error", "999")
}

func TestDevices(t *testing.T) {
	f := newFake(t, latest)
	d := f.open()
	want := []cuda.Info{
		{Name: "Fake 0", UUID: [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Bus: "0000:b0:00.0"},
		{Index: 1, Name: "Fake 1", Bus: "0000:b1:00.0",
			UUID: [16]byte{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}},
	}
	for index := range want {
		want[index].Major, want[index].Minor, want[index].Bytes = 9, 1, 80<<30
		want[index].Processors = 132
		want[index].Words, want[index].Registers, want[index].Shares, want[index].DMABuf = true, true, true, true
	}
	if got := must(d.Devices())(t); !reflect.DeepEqual(got, want) {
		t.Errorf("devices %+v, want %+v", got, want)
	}
	for attribute, lacks := range map[int]func(cuda.Info) bool{
		122: func(i cuda.Info) bool { return !i.Words && i.Registers && i.Shares },
		99:  func(i cuda.Info) bool { return i.Words && !i.Registers && i.Shares },
		103: func(i cuda.Info) bool { return i.Words && i.Registers && !i.Shares },
		124: func(i cuda.Info) bool { return i.Shares && !i.DMABuf },
	} {
		f.set("without", attribute)
		if info := must(d.Devices())(t)[1]; !lacks(info) {
			t.Errorf("without attribute %d: %+v", attribute, info)
		}
	}
	f.set("devices", 0)
	if none := must(d.Devices())(t); len(none) != 0 {
		t.Errorf("%d devices, want none", len(none))
	}
	_, err := d.Retain(0)
	refused(t, err, fault.System, "cuDeviceGet: CUDA_ERROR_INVALID_DEVICE (101)")
}

// TestLayout compares structures with those of cuda.h.
func TestLayout(t *testing.T) {
	var op memOp
	var p allocation
	var l launchConfig
	var a access
	for _, each := range []struct {
		name      string
		got, want uintptr
	}{
		{"memOp", unsafe.Sizeof(op), 48},
		{"memOp.address", unsafe.Offsetof(op.address), 8},
		{"memOp.value", unsafe.Offsetof(op.value), 16},
		{"memOp.flags", unsafe.Offsetof(op.flags), 24},
		{"memOp.alias", unsafe.Offsetof(op.alias), 32},
		{"launchConfig", unsafe.Sizeof(l), 56},
		{"launchConfig.threads", unsafe.Offsetof(l.threads), 12},
		{"launchConfig.shared", unsafe.Offsetof(l.shared), 24},
		{"launchConfig.stream", unsafe.Offsetof(l.stream), 32},
		{"launchConfig.attributes", unsafe.Offsetof(l.attributes), 40},
		{"launchConfig.count", unsafe.Offsetof(l.count), 48},
		{"allocation", unsafe.Sizeof(p), 32},
		{"allocation.location", unsafe.Offsetof(p.location), 8},
		{"allocation.compression", unsafe.Offsetof(p.compression), 24},
		{"allocation.rdma", unsafe.Offsetof(p.rdma), 25},
		{"access", unsafe.Sizeof(a), 12},
		{"access.flags", unsafe.Offsetof(a.flags), 8},
	} {
		if each.got != each.want {
			t.Errorf("%s: %d, want %d", each.name, each.got, each.want)
		}
	}
}
