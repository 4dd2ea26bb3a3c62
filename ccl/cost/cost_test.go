package cost

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsual(t *testing.T) {
	require.NoError(t, Usual().Validate())
	f := File{Format: Format, Costs: *Usual()}
	require.NoError(t, f.Validate())
	text, err := json.Marshal(&f)
	require.NoError(t, err)
	var read File
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, f, read)
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		says   string
		change func(t *Table)
	}{
		{"network.latency is -1", func(t *Table) { t.Network.Latency = -1 }},
		{"memory.send.byte is 1, want 0 to 0.001", func(t *Table) { t.Memory.Send.Byte = 1 }},
		{"network.switch is NaN", func(t *Table) { t.Network.Switch = math.NaN() }},
		{"call is +Inf", func(t *Table) { t.Call = math.Inf(1) }},
		{"network.bandwidth is 0 bytes a second", func(t *Table) { t.Network.Bandwidth = 0 }},
		{"network.bandwidth is NaN", func(t *Table) { t.Network.Bandwidth = math.NaN() }},
		{"network.fragment is 0", func(t *Table) { t.Network.Fragment = 0 }},
		{"memory.credit -3", func(t *Table) { t.Memory.Credit = -3 }},
	} {
		made := Usual()
		test.change(made)
		require.ErrorContains(t, made.Validate(), test.says)
	}
	require.ErrorContains(t, (&File{Format: 2, Costs: *Usual()}).Validate(), "format 2, want 1")
}

// The credit of a long path holds what a fast path of that length does, up to a limit.
func TestCreditOfLongPaths(t *testing.T) {
	for _, test := range []struct {
		latency float64
		credit  int
	}{{0, 16}, {1e-4, 16}, {3e-4, 32}, {1e-3, 64}, {1, 128}} {
		p := Path{Latency: test.latency}
		p.TCP()
		require.Equal(t, test.credit, p.Credit, test.latency)
	}
}

func TestSlowest(t *testing.T) {
	a := Path{Latency: 1, Bandwidth: 5, Burst: 7, Send: Work{1, 4, 0, 1}, Receive: Work{2, 2, 0, 0}, Fragment: 8,
		Credit: 4}
	b := Path{Latency: 2, Bandwidth: 4, Burst: 9, Send: Work{3, 2, 1, 0}, Receive: Work{1, 1, 0, 0}, Fragment: 6,
		Credit: 9}
	want := Path{Latency: 2, Bandwidth: 4, Burst: 7, Send: Work{3, 4, 1, 1}, Receive: Work{2, 2, 0, 0}, Fragment: 6,
		Credit: 4}
	require.Equal(t, want, Slowest(a, b))
	require.Equal(t, want, Slowest(b, a))
	require.Equal(t, a, Slowest(a, a))
}

// What was written is read, also what is 0; what files of older versions lack is as usual.
func TestRead(t *testing.T) {
	made := &File{Format: Format, Host: &Part{Of: "a test"}, Costs: *Usual()}
	made.Costs.Windows.Read.Miss, made.Costs.Copy.Far, made.Costs.Far.Latency = 0, 0, 0.25
	text, err := json.Marshal(made)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "costs.json")
	require.NoError(t, os.WriteFile(name, text, 0o600))
	read, err := Read(name)
	require.NoError(t, err)
	require.Equal(t, made, read)

	var older map[string]any
	require.NoError(t, json.Unmarshal(text, &older))
	delete(older["costs"].(map[string]any), "far")
	text, err = json.Marshal(older)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, text, 0o600))
	read, err = Read(name)
	require.NoError(t, err)
	require.Equal(t, Usual().Far, read.Costs.Far)
	require.Equal(t, made.Costs.Memory, read.Costs.Memory)
}
