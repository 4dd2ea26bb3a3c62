package nvml

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// fake builds the library of testdata/fakenvml.c.
func fake(t *testing.T) string {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler (cc), which the fake libnvidia-ml needs")
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	source := filepath.Join("testdata", "fakenvml.c")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", path, source).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func TestLinks(t *testing.T) {
	path := fake(t)
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	var inits func() int32
	var fail func(code int32)
	purego.RegisterLibFunc(&inits, handle, "fake_inits")
	purego.RegisterLibFunc(&fail, handle, "fake_fail")

	l, err := open(path)
	require.NoError(t, err)
	for bus, want := range map[string]map[string]int{
		"0000:01:00.0": {"0000:02:00.0": 4}, "0000:02:00.0": {"0000:01:00.0": 4}, "0000:03:00.0": {"0000:ab:00.0": 1},
	} {
		links, err := l.Links(bus)
		require.NoError(t, err)
		require.Equal(t, want, links)
	}
	capability, err := l.Capability("0000:01:00.0")
	require.NoError(t, err)
	require.Equal(t, 90, capability)
	_, unknown := l.Capability("0000:03:00.0")
	require.ErrorContains(t, unknown, "nvmlDeviceGetCudaComputeCapability returned 3")
	_, gone := l.Capability("0000:09:00.0")
	require.ErrorIs(t, gone, fault.NotSupported)
	between, err := l.Between("0000:01:00.0", "0000:02:00.0")
	require.NoError(t, err)
	require.Equal(t, "one PCIe switch", between)
	between, err = l.Between("0000:01:00.0", "0000:03:00.0")
	require.NoError(t, err)
	require.Equal(t, "the link between processors", between)
	_, same := l.Between("0000:01:00.0", "0000:01:00.0")
	_, first := l.Between("0000:09:00.0", "0000:01:00.0")
	_, second := l.Between("0000:01:00.0", "0000:09:00.0")
	_, links := l.Links("0000:09:00.0")
	for _, err := range []error{same, first, second, links} {
		require.ErrorIs(t, err, fault.NotSupported)
	}
	require.EqualValues(t, 1, inits())
	l.Close()
	require.Zero(t, inits())
	fail(9)
	_, err = open(path)
	require.ErrorContains(t, err, "nvmlInit_v2 returned 9")
}

func TestNoLibrary(t *testing.T) {
	_, err := open(filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "was not found")
	_, err = open("libc.so.6")
	require.ErrorContains(t, err, "has no nvml")
}
