package park

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// grow creates the files of a made-up system from text: some lines of prose, then for each file a
// line "-- name --" and its content.
func grow(t testing.TB, text string) (root, prose string) {
	root = t.TempDir()
	var file *os.File
	for line := range strings.Lines(text) {
		name, isName := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		name, closed := strings.CutSuffix(name, " --")
		switch {
		case isName && closed:
			if file != nil {
				require.NoError(t, file.Close())
			}
			name = filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
			var err error
			file, err = os.Create(name)
			require.NoError(t, err)
		case file == nil:
			prose += line
		default:
			_, err := file.WriteString(line)
			require.NoError(t, err)
		}
	}
	if file != nil {
		require.NoError(t, file.Close())
	}
	return root, prose
}
