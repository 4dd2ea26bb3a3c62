package probe

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaces compares machines of made-up file systems with one that has an interface.
func TestPlaces(t *testing.T) {
	const boot, other = "d9a5b0c2-6a0e-4c43-9d52-a9ac9e1a9d11\n", "4e5b4e8e-7f3e-4d69-8dd0-2a53a3c2b1f0\n"
	eth := map[string]string{"address": "52:54:00:12:34:56\n", "ifindex": "2\n", "type": "1\n"}
	first := machine(t, boot, "net:[4026531840]", map[string]map[string]string{"eth0": eth})
	for name, c := range map[string]struct {
		boot, namespace string
		interfaces      map[string]map[string]string
		same            bool
	}{
		"the same": {boot, "net:[4026531840]", map[string]map[string]string{"eth0": eth}, true},
		"more interfaces": {boot, "net:[4026531840]", map[string]map[string]string{"eth0": eth,
			"lo":      {"address": "00:00:00:00:00:00\n", "ifindex": "1\n", "type": "772\n"},
			"tunl0":   {"address": "10.0.0.1\n", "ifindex": "1\n", "type": "768\n"},
			"docker0": {"address": "02:42:00:00:00:01\n", "ifindex": "10\n", "type": "1\n"}}, true},
		"another boot":      {other, "net:[4026531840]", map[string]map[string]string{"eth0": eth}, false},
		"another namespace": {boot, "net:[4026532000]", map[string]map[string]string{"eth0": eth}, false},
		"a copy of the machine": {boot, "net:[4026531840]", map[string]map[string]string{"eth0": {
			"address": "52:54:00:12:34:57\n", "ifindex": "2\n", "type": "1\n"}}, false},
		"no interface": {boot, "net:[4026531840]", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			one, err := Place(first)
			require.NoError(t, err)
			two, err := Place(machine(t, c.boot, c.namespace, c.interfaces))
			require.NoError(t, err)
			require.Equal(t, c.same, one.Memory() == two.Memory())
			require.Equal(t, c.boot == boot, one.Machine == two.Machine)
		})
	}
	_, err := Place(t.TempDir())
	require.ErrorContains(t, err, "boot id")
}

func TestOuterUser(t *testing.T) {
	for _, tt := range []struct {
		text       string
		user, want uint32
	}{
		{"", 1000, 1000},
		{"         0          0 4294967295\n", 1000, 1000},
		{"         0       1000          1\n", 0, 1000},
		{"0 1000 1\n1 100000 65536\n", 5, 100004},
		{"0 100000 65536\n", 65536, 65536},
		{"0 100000\nnonsense\n", 0, 0},
	} {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/self"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, "proc/self/uid_map"), []byte(tt.text), 0o600))
		require.Equal(t, tt.want, outerUser(root, tt.user), tt.text)
	}
}

// machine makes a file system of what Place reads, and returns its root.
func machine(t *testing.T, boot, namespace string, interfaces map[string]map[string]string) string {
	root := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	write("proc/sys/kernel/random/boot_id", boot)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/self/ns"), 0o700))
	require.NoError(t, os.Symlink(namespace, filepath.Join(root, "proc/self/ns/net")))
	for name, files := range interfaces {
		for file, text := range files {
			write(filepath.Join("sys/class/net", name, file), text)
		}
	}
	return root
}

// TestFirstOf takes the interface with the smallest index that has a hardware address.
func TestFirstOf(t *testing.T) {
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
	require.Empty(t, firstOf(nil))
	require.Equal(t, "02:00:00:00:00:07", firstOf([]net.Interface{{Index: 1}, {Index: 9, HardwareAddr: mac(9)},
		{Index: 2, HardwareAddr: net.HardwareAddr{10, 0, 0, 1}}, {Index: 3, HardwareAddr: mac(7)}}))
}
