package tune

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(Command()), append([]string{"tune"}, args...), &out)
	return out.String(), err
}

func TestPrintFit(t *testing.T) {
	costs := measured.Costs{Alpha: 28.58e-6, Beta: 7.9271e-9, Gamma: 8.25e-12, Failed: 1,
		AlphaRange: measured.Spread{28.58e-6, 28.58e-6}, BetaRange: measured.Spread{7.9271e-9, 7.9271e-9}}
	var out bytes.Buffer
	require.NoError(t, printFit(&out, costs, nil, false))
	for _, want := range []string{
		"α = 28.6 µs (28.6 to 28.6)\nβ = 7.9271 ns/B (7.9271 to 7.9271), which is 0.126 GB/s\n",
		"warning: 1 blocks of calls of the ping-pong gave no fit: ",
		"goccl sim --topo uniform,alpha=28.58us,bw=0.126GB --gamma 0.0083ns has this network\n",
	} {
		require.Contains(t, out.String(), want)
	}
}

func TestTuneRefuses(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"fit more", "takes no arguments"},
		{"fit --ranks 0", "--ranks 0: want 2 to 64"},
		{"fit --ranks 1", "--ranks 1: want 2 to 64"},
		{"fit --ranks 65", "--ranks 65: want 2 to 64"},
		{"fit --ranks two", "--ranks two: want a whole number"},
		{"fit --size 2M..1M", "2097152 to 1048576 is no range"},
		{"fit --size 2..4", "want 4 bytes or more"},
		{"fit --size -1", "size \"-1\""},
		{"fit --size 1.5MM", "size \"1.5MM\""},
		{"fit --size 1..7Q", "size \"7Q\""},
		{"fit --size 1M..2G", "--size: want 1G or less"},
		{"fit --size 64..1K", "largest size measured would be 1024 bytes"},
		{"fit --size 1K", "largest size measured would be 1024 bytes"},
		{"fit --factor 1", "--factor"},
		{"fit --repeat 0", "--repeat"},
		{"fit --rate nonsense", "--rate nonsense: want a number and a unit"},
		{"fit --rate 1000", "--rate 1000: want"},
		{"fit --rate 0gbit", "--rate 0gbit: want"},
		{"fit --rate -1gbit", "--rate -1gbit: want"},
	} {
		_, err := run(t, strings.Fields(test.args)...)
		require.ErrorContains(t, err, test.want, test.args)
	}
}

func TestRateForm(t *testing.T) {
	for _, rate := range []string{"1gbit", "100Mbit", "2.5gbit", "0.5gbit", "12.5mbps", "10gibit", "800bit"} {
		if !rateForm.MatchString(rate) {
			t.Errorf("%q is a rate of tc", rate)
		}
	}
	for _, rate := range []string{"0.0gbit", "gbit", "1 gbit", "1gbit burst 1kb", "1.gbit", "1gb", "1e9bit"} {
		if rateForm.MatchString(rate) {
			t.Errorf("%q is no rate", rate)
		}
	}
}
