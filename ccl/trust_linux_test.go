package ccl_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
)

func secretFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, []byte(text), mode))
	return name
}

// TestTrust makes a group by TCP with TLS and a secret.
func TestTrust(t *testing.T) {
	opts := ccl.GroupOptions{Transport: "tcp", TLS: true}
	all := nodes(t, 3, ccl.NodeOptions{SecretFile: secretFile(t, "sixteen bytes or more\n", 0o600)})
	checkGroup(t, join(t, all, opts, "trusted"))
	opts.TLS = false
	_, err := all[0].Open(ccl.Config{Name: "plain", Size: 3, Options: opts})
	require.ErrorContains(t, err, "GOCCL_TLS=0, but an earlier group of this process has opened TCP otherwise")
}

func TestSecretFile(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{filepath.Join(t.TempDir(), "none"), "no such file"},
		{t.TempDir(), "others than its owner can use it; chmod 600"},
		{secretFile(t, "sixteen bytes or more", 0o640), "others than its owner can use it; chmod 600"},
		{secretFile(t, "  fourteen bytes\n ", 0o600), "has 14 bytes, a secret has at least 16"},
	} {
		// Shared memory needs no secret, but a group that might use TCP must not go on without.
		for _, by := range []string{"tcp", "auto"} {
			node := nodes(t, 1, ccl.NodeOptions{SecretFile: tt.file})[0]
			_, err := node.Open(ccl.Config{Name: "g", Size: 1, Options: ccl.GroupOptions{Transport: by}})
			require.ErrorContains(t, err, tt.want)
		}
	}
}
