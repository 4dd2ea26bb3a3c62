// Package scratch is imported by tests that join groups: what these measure of the machine is then
// kept in a folder for tests, and not in the user's cache. Processes that they start inherit that.
package scratch

import (
	"fmt"
	"os"
	"path/filepath"
)

func init() {
	const cache, ofGo = "XDG_CACHE_HOME", "GOCACHE"
	if own, err := os.UserCacheDir(); err == nil && os.Getenv(ofGo) == "" {
		os.Setenv(ofGo, filepath.Join(own, "go-build")) // tests that build programs need it
	}
	os.Setenv(cache, filepath.Join(os.TempDir(), fmt.Sprint("goccl-test-cache-", os.Getuid())))
}
