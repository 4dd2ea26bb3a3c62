package tune

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	_ "github.com/goccl/goccl/internal/scratch"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(Command()), append([]string{"tune"}, args...), &out)
	return out.String(), err
}

func TestPrintCosts(t *testing.T) {
	part := &cost.Part{Of: "a test", Misfit: 0.0123, Spread: 0.2}
	made := &cost.File{Format: cost.Format, Host: part, Costs: *cost.Usual()}
	var out bytes.Buffer
	require.NoError(t, printCosts(&out, made, "here"))
	for _, want := range []string{
		"a test, measured 0001-01-01 00:00:00: predictions miss the calls that the costs were made of by 1.2 % in the middle;",
		"between hosts  5.000         1.18",
		"takes over a core in a host       1.000",
		"here has them\n",
	} {
		require.Contains(t, out.String(), want)
	}
}

// Files that are wrong get one sentence that says what and where.
func TestWrongCosts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "costs.json")
	good := &cost.File{Format: cost.Format, Costs: *cost.Usual()}
	require.NoError(t, writeCosts(file, good))
	made, err := readCosts(file)
	require.NoError(t, err)
	require.Equal(t, good.Costs, made.Costs)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, test := range []struct{ from, to, want string }{
		{`"goccl_costs": 1`, `"goccl_costs": 7`, "format 7, want 1"},
		{`"latency": 0.000005`, `"latency": -1`, "network.latency is -1"},
		{`"latency": 0.000005`, `"latency": 1e300`, "network.latency is 1e+300"},
		{`"bandwidth": 1180000000`, `"bandwidth": 0`, "network.bandwidth is 0"},
		{`"bandwidth": 1180000000`, `"bandwidth": "fast"`, "cannot unmarshal string"},
		{`"credit": 8`, `"credit": 0`, "memory.credit 0"},
		{`{`, `[`, "invalid character"},
		{string(text), "", "unexpected end"},
		{string(text), strings.Repeat("[", 1<<21), "exceeded max depth"},
	} {
		require.Contains(t, string(text), test.from)
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), test.from, test.to, 1)), 0o600))
		_, err := readCosts(file)
		require.ErrorContains(t, err, test.want)
		require.ErrorContains(t, err, file)
	}
	_, err = run(t, "check", "--costs", filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "no such file")
	_, err = run(t, "check", "--from", file)
	require.ErrorContains(t, err, "row 1: ")
}

// What a group uses, and why: by a wish, a row, a prediction or a rule.
func TestExplain(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // no costs of this machine
	out, err := run(t, strings.Fields("explain --ranks 4 --hosts 4 --size 64K --op broadcast,barrier")...)
	require.NoError(t, err)
	require.Contains(t, out, "costs of the network: nobody has measured them (goccl tune fit); the usual ones\n")
	require.Regexp(t, `(?m)^broadcast +65536 +binomial +rule +\d+\.\d +\w+ +\d\.\d\d ×$`, out)
	require.Regexp(t, `(?m)^barrier +0 +dissemination +rule `, out)

	file := filepath.Join(t.TempDir(), "costs.json")
	slow := &cost.File{Format: cost.Format, Network: &cost.Part{Of: "a test"}, Costs: *cost.Usual()}
	slow.Costs.Network.Bandwidth = 125e6
	require.NoError(t, writeCosts(file, slow))
	t.Setenv("GOCCL_ALGO", "all_gather=bruck")
	out, err = run(t, strings.Fields("explain --json --ranks 4 --hosts 4 --size 64K --op broadcast,all_gather --costs "+file)...)
	require.NoError(t, err)
	var rows []explained
	for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
		var r explained
		require.NoError(t, decoder.Decode(&r))
		rows = append(rows, r)
	}
	require.Len(t, rows, 2)
	require.Equal(t, []string{"double_binary_tree", "predicted"}, []string{rows[0].Algorithm, rows[0].Why})
	require.Equal(t, []string{"bruck", "GOCCL_ALGO"}, []string{rows[1].Algorithm, rows[1].Why})
	require.Positive(t, rows[1].Predicted)
	require.Positive(t, rows[1].NextTime)

	t.Setenv("GOCCL_TOPO", "uniform:4,alpha=5us,bw=125MB") // not where costs are named
	again, err := run(t, strings.Fields("explain --json --ranks 4 --hosts 4 --size 64K --op broadcast,all_gather --costs "+file)...)
	require.NoError(t, err)
	require.Equal(t, out, again)
	out, err = run(t, strings.Fields("explain --ranks 4 --hosts 4 --size 64K --op broadcast")...)
	require.NoError(t, err)
	require.Contains(t, out, "costs of the network: of GOCCL_TOPO=uniform:4,alpha=5us,bw=125MB\n")
	require.Regexp(t, `(?m)^broadcast +65536 +double_binary_tree +predicted `, out)
	_, err = run(t, strings.Fields("explain --ranks 8 --hosts 8 --size 64K --op broadcast")...)
	require.ErrorContains(t, err, "GOCCL_TOPO: the network has 4 ranks, --hosts is 8")
	t.Setenv("GOCCL_TOPO", "no/such.topo")
	_, err = run(t, strings.Fields("explain --ranks 4 --hosts 4")...)
	require.ErrorContains(t, err, "there is no such file")

	t.Setenv("GOCCL_COSTS", "off")
	out, err = run(t, strings.Fields("explain --ranks 2 --size 1M --op all_reduce")...)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^all_reduce +1048576 +two_shot_window +(measured|rule) `, out)
	require.NotContains(t, out, "online")
	t.Setenv("GOCCL_TUNE", "online")
	out, err = run(t, strings.Fields("explain --ranks 2 --size 1M --op all_reduce")...)
	require.NoError(t, err)
	require.Contains(t, out, "GOCCL_TUNE=online: a group tries others, too")
	_, err = run(t, strings.Fields("explain --ranks 2 --hosts 3")...)
	require.ErrorContains(t, err, "--hosts 3: more than --ranks 2")
}

func TestTuneRefuses(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"fit more", "takes no arguments"},
		{"check --ranks 0", "--ranks 0: want numbers from 2 to 64"},
		{"check --ranks 2,65", "--ranks 2,65: want numbers from 2 to 64"},
		{"check --ranks two", "--ranks two: want numbers"},
		{"check --op nothing", "--op nothing: "},
		{"fit --size 2M..1M", "2097152 to 1048576 is no range"},
		{"fit --size 2..4", "want 4 bytes or more"},
		{"fit --size -1", "size \"-1\""},
		{"fit --size 1.5MM", "size \"1.5MM\""},
		{"fit --size 1..7Q", "size \"7Q\""},
		{"fit --size 1M..2G", "--size: want 1G or less"},
		{"fit --size 64..1K", "--size: a fit needs sizes from 1024 bytes or less to 65536 or more"},
		{"fit --size 1M", "--size: a fit needs sizes"},
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
