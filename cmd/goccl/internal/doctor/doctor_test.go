package doctor

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	_ "github.com/goccl/goccl/internal/scratch"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(Command()), append([]string{"doctor"}, args...), &out)
	return out.String(), err
}

func TestDoctor(t *testing.T) {
	out, err := run(t, "--json", "--python", "no-such-python")
	require.NoError(t, err)
	var findings []struct{ Name, State, Value, Hint string }
	require.NoError(t, json.Unmarshal([]byte(out), &findings))
	names := map[string]string{}
	for _, f := range findings {
		names[f.Name] = f.State
	}
	require.Equal(t, "ok", names["goccl"])
	require.Equal(t, "missing", names["python"])
	require.Contains(t, names, "interfaces")
	require.Equal(t, "ok", names["congestion control"])
	out, err = run(t, "--python", "no-such-python")
	require.NoError(t, err)
	require.Contains(t, out, "→ name one by --python")
	require.NotContains(t, out, "\x1b", "colours are for terminals")
}
