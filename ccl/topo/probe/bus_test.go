package probe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnBus(t *testing.T) {
	root := t.TempDir()
	device := filepath.Join(root, "sys/devices/pci0000:64/0000:64:00.0/0000:65:00.0")
	require.NoError(t, os.MkdirAll(device, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/devices/virtual/x"), 0o755))
	bus := filepath.Join(root, "sys/bus/pci/devices")
	require.NoError(t, os.MkdirAll(bus, 0o755))
	require.NoError(t, os.Symlink("../../../devices/pci0000:64/0000:64:00.0/0000:65:00.0", filepath.Join(bus, "0000:65:00.0")))
	for text, want := range map[string]int{"1\n": 1, "0\n": 0, "-1\n": -1, "x": -1} {
		require.NoError(t, os.WriteFile(filepath.Join(device, "numa_node"), []byte(text), 0o644))
		path, node := OnBus(root, "0000:65:00.0")
		require.Equal(t, []string{"pci0000:64", "0000:64:00.0", "0000:65:00.0"}, path)
		require.Equal(t, want, node)
	}
	path, node := OnBus(root, "0000:66:00.0")
	require.Nil(t, path)
	require.Equal(t, -1, node)
	require.Nil(t, BusPath(filepath.Join(root, "sys/devices/virtual/x")))
}
