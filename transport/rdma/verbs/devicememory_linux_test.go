//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// openedFake returns an adapter of a fake library, and what counts its objects.
func openedFake(t *testing.T) (*fake, *context) {
	t.Helper()
	f := newFake(t)
	f.modules = t.TempDir()
	opened, err := f.Open("fake0")
	require.NoError(t, err)
	t.Cleanup(func() {
		f.refuse("", 0)
		require.NoError(t, opened.Close())
		require.Zero(t, f.live())
	})
	return f, opened.(*context)
}

func TestRegisterDMABuf(t *testing.T) {
	f, c := openedFake(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	register := func() (Region, error) { return c.RegisterDMABuf(int(null.Fd()), 512, 100_000, 0x7000_0200) }
	r, err := register()
	require.NoError(t, err)
	require.EqualValues(t, 0x70000, r.Local())
	require.NoError(t, r.Close())

	for errno, class := range map[syscall.Errno]fault.Code{syscall.EOPNOTSUPP: fault.NotSupported,
		syscall.ENOSYS: fault.NotSupported, syscall.EINVAL: fault.System, syscall.ENOMEM: fault.System} {
		f.refuse("ibv_reg_dmabuf_mr", int32(errno))
		_, err = register()
		require.ErrorIs(t, err, class)
		require.ErrorIs(t, err, errno)
	}
	f.refuse("", 0)
	f.lay("ibv_mr.pd")
	_, err = register()
	require.ErrorContains(t, err, "libibverbs does not fit: ibv_mr.pd is ")
	f.lay("")
}

// TestOlderLibrary: a library without ibv_reg_dmabuf_mr is used all the same.
func TestOlderLibrary(t *testing.T) {
	newFake(t) // skips where there is no compiler
	path := filepath.Join(t.TempDir(), "libibverbs.so.1")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-DOLDER", "-o", path, "testdata/fakeverbs.c").CombinedOutput()
	require.NoError(t, err, string(out))
	l, err := openLibrary(path)
	require.NoError(t, err)
	_, err = (&context{library: l}).RegisterDMABuf(0, 0, 4096, 0)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "libibverbs has no ibv_reg_dmabuf_mr: it takes rdma-core 34 or later")
}

// TestRegisterAddress: memory of a device is asked for only where a module is there that knows it.
func TestRegisterAddress(t *testing.T) {
	f, c := openedFake(t)
	const at, bytes = 0x7000_0000_0000, 2 << 20
	_, err := c.RegisterAddress(at, bytes)
	require.ErrorIs(t, err, fault.NotSupported)
	require.ErrorContains(t, err, "the kernel module nvidia_peermem is not loaded (modprobe nvidia_peermem)")
	for _, module := range peerModules {
		f.modules = t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(f.modules, module), 0o755))
		r, err := c.RegisterAddress(at, bytes)
		require.NoError(t, err)
		require.Zero(t, r.Remote(), "the fake returns the access: peers have none")
		require.NoError(t, r.Close())
	}
	f.refuse("ibv_reg_mr", int32(syscall.EFAULT))
	_, err = c.RegisterAddress(at, bytes)
	require.ErrorIs(t, err, fault.System)
	require.ErrorContains(t, err, "fake0 cannot register 2M of memory of a device: bad address")
}
