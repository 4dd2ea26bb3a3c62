package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/plan"
	"github.com/goccl/goccl/cmd/goccl/internal/sim"
	"github.com/goccl/goccl/cmd/goccl/internal/verify"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(plan.Command(), verify.Command(), sim.Command()), args, &out)
	return out.String(), err
}

func TestPlans(t *testing.T) {
	out, err := run(t, "plan", "list")
	require.NoError(t, err)
	require.Contains(t, out, "all_reduce")
	out, err = run(t, "plan", "list", "barrier")
	require.NoError(t, err)
	require.NotContains(t, out, "all_reduce")
	out, err = run(t, "plan", "show", "--ranks", "3", "allreduce/ring")
	require.NoError(t, err)
	require.Contains(t, out, "verified")
	require.Contains(t, out, "recvreduce")
	out, err = run(t, "plan", "show", "--ranks", "3", "--rank", "1", "broadcast")
	require.NoError(t, err)
	require.Contains(t, out, "recv")
}

func TestPlanList(t *testing.T) {
	out, err := run(t, "plan", "list", "--json", "all_reduce")
	require.NoError(t, err)
	var rows []struct {
		Collective string
		Level      int
		Needs      []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.NotEmpty(t, rows)
	for _, r := range rows {
		require.Equal(t, "all_reduce", r.Collective)
		require.NotEmpty(t, r.Needs)
		require.NotZero(t, r.Level)
	}
	out, err = run(t, "plan", "list")
	require.NoError(t, err)
	require.Contains(t, out, "LEVEL")
}

func TestPlanDraw(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.svg")
	_, err := run(t, "plan", "draw", "-o", path, "all_reduce/ring", "--ranks", "4")
	require.NoError(t, err)
	picture, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(picture), "all_reduce, ring, 4 ranks")
	out, err := run(t, "plan", "draw", "all_reduce/hierarchical", "--ranks", "8", "--shape", "4x2")
	require.NoError(t, err)
	require.Contains(t, out, "8 ranks as 4x2")
	out, err = run(t, "plan", "draw", "broadcast", "--root", "2", "--rank", "2")
	require.NoError(t, err)
	require.Contains(t, out, "root 2")
}

// show prints which grid it used, if the algorithm has one.
func TestPlanShowsTheGrid(t *testing.T) {
	for args, want := range map[string]string{
		"all_reduce/hierarchical --ranks 5":                 "# no grid: 5 ranks have none, so all are in one level\n",
		"all_reduce/hierarchical --ranks 12":                "# grid 4x3, the innermost level first; --shape sets another\n",
		"all_reduce/hierarchical --ranks 12 --shape 2x6":    "# grid 2x6, the innermost level first\n",
		"all_reduce/hierarchical --ranks 12 --shape 1x12":   "# no grid: all ranks are in one level of 1x12\n",
		"all_reduce/hierarchical.ring.ring.ring --ranks 12": "# grid 3x2x2, the innermost level first; --shape sets another\n",
		"all_reduce/torus_2d --ranks 5":                     "# grid 5x1, the innermost level first; --shape sets another\n",
		"all_reduce/mesh_2d --ranks 6 --shape 2x3":          "# grid 2x3, the innermost level first\n",
		"all_to_all/2d --ranks 8":                           "# grid 4x2, the innermost level first; --shape sets another\n",
		"all_to_all/hierarchical --ranks 12 --shape 3x2x2":  "# grid 3x4, the innermost level first\n",
		"all_to_all/hierarchical --ranks 7":                 "# no grid: 7 ranks have none, so all are in one level\n",
	} {
		out, err := run(t, append([]string{"plan", "show"}, strings.Fields(args)...)...)
		require.NoError(t, err, args)
		require.Contains(t, out, want, args)
	}
	out, err := run(t, "plan", "show", "all_reduce/ring", "--ranks", "6")
	require.NoError(t, err)
	require.NotContains(t, out, "grid")
}

// verify, show and draw read what export writes.
func TestPlanFiles(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		path := filepath.Join(t.TempDir(), "plan")
		_, err := run(t, "plan", "export", "all_reduce/ring", "--ranks", "3", "--format", format, "-o", path)
		require.NoError(t, err)
		out, err := run(t, "verify", path)
		require.NoError(t, err)
		require.Contains(t, out, "ring: all_reduce on 3 ranks\nverified: right result")
		require.Contains(t, out, "a rank sends up to 4 chunks")
		out, err = run(t, "plan", "show", path)
		require.NoError(t, err)
		require.Contains(t, out, "recvreduce")
		out, err = run(t, "plan", "draw", path)
		require.NoError(t, err)
		require.Contains(t, out, "all_reduce, ring, 3 ranks")
		_, err = run(t, "plan", "draw", path, "--ranks", "4")
		require.ErrorContains(t, err, "leave --ranks out")
	}
	out, err := run(t, "plan", "export", "barrier")
	require.NoError(t, err)
	require.Contains(t, out, "goccl plan format")
}

func TestWrongPlanFiles(t *testing.T) {
	dir := t.TempDir()
	good, err := run(t, "plan", "export", "all_reduce/ring", "--ranks", "2")
	require.NoError(t, err)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	malformed := write("malformed", strings.Replace(good, "recvreduce", "recvreduse", 1))
	_, err = run(t, "verify", malformed)
	require.ErrorContains(t, err, "goccl: invalid argument: "+malformed+": plan:8:7: found")
	require.ErrorContains(t, err, "recvreduse")
	wrong := write("wrong", strings.Replace(good, " final", "", 1))
	_, err = run(t, "verify", wrong)
	require.ErrorContains(t, err, "post-scaling")
	_, err = run(t, "verify", filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "cannot read the plan")
}

// A wrong plan from a file is drawn for inspection, and both the drawing and the exit status report
// that it is wrong; it is neither shown nor exported.
func TestWrongPlansAreDrawn(t *testing.T) {
	text, err := run(t, "plan", "export", "all_reduce/ring", "--ranks", "3")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "all_reduce")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, " final", "")), 0o600))
	for _, verb := range []string{"plan show", "plan export", "verify"} {
		out, err := run(t, append(strings.Fields(verb), path)...)
		require.Regexp(t, `^plan "ring" \(all_reduce on 3 ranks\) is wrong: post-scaling: `, cli.Message(err), verb)
		require.ErrorContains(t, err, "these steps show it", verb)
		require.Empty(t, out, verb)
	}
	out, err := run(t, "plan", "draw", path)
	require.ErrorContains(t, err, `plan "ring" (all_reduce on 3 ranks) is wrong: post-scaling`)
	require.False(t, errors.As(err, new(cli.Misuse)))
	require.Contains(t, out, "<svg")
	require.Contains(t, out, `class="worse"`)
	require.Contains(t, out, "is wrong: post-scaling")
	picture := filepath.Join(t.TempDir(), "swap.svg")
	swap := write(t, `goccl plan format 2
plan swap all_reduce ranks=2 needs=messages
rank 0
  lane 0
    recvreduce out[0] = in[0] + msg from 1 final
    send in[0] to 1
rank 1
  lane 0
    recvreduce out[0] = msg + in[0] from 0 final
    send in[0] to 0
`)
	_, err = run(t, "plan", "draw", "-o", picture, swap)
	require.ErrorContains(t, err, "is wrong: deadlock: ")
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(drawn), "is wrong: deadlock: ")
	require.Contains(t, string(drawn), "4 of 4 steps never happen")
	_, err = run(t, "plan", "draw", "--rank", "2", swap)
	require.ErrorContains(t, err, "is wrong: deadlock: ")
	require.ErrorContains(t, err, "\nit cannot be drawn: rank 2 of a plan for 2 ranks")
}

// write writes a plan file.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.plan")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPlansFromStandardInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	_, err := run(t, "plan", "export", "reduce", "--ranks", "6",
		"--root", "5", "--shape", "3x2", "--format", "json", "-o", path)
	require.NoError(t, err)
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	for _, verb := range []string{"verify", "plan show", "plan export", "plan draw"} {
		file, err := os.Open(path)
		require.NoError(t, err)
		os.Stdin = file
		out, err := run(t, append(strings.Fields(verb), "-")...)
		require.NoError(t, err, verb)
		require.NotEmpty(t, out)
		if verb == "verify" {
			require.Contains(t, out, "binomial: reduce on 6 ranks (3x2), root 5\n")
		}
	}
	_, err = run(t, "plan", "draw", os.DevNull)
	require.ErrorContains(t, err, os.DevNull+": plan:1:1: it is empty")
}

// The commands of docs/own-plans.md work, in their order.
func TestOwnPlansPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/own-plans.md")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	commands := 0
	for line := range strings.Lines(string(page)) {
		if command, ok := strings.CutPrefix(line, "    goccl "); ok && !strings.Contains(command, " rank ") {
			command, _, _ = strings.Cut(command, "#")
			_, err := run(t, strings.Fields(command)...)
			require.NoError(t, err, command)
			commands++
		}
	}
	require.Equal(t, 4, commands)
}

// Plans that are too large are shown rank by rank, unverified, and are not exported as files that
// no reader accepts.
func TestLargePlans(t *testing.T) {
	out, err := run(t, "plan", "show", "all_reduce/ring", "--ranks", "65536", "--rank", "65535")
	require.NoError(t, err)
	require.Contains(t, out, "not verified here")
	require.Contains(t, out, "\nrank 65535\n")
	require.Equal(t, 1, strings.Count(out, "\nrank "))
	path := filepath.Join(t.TempDir(), "plan")
	_, err = run(t, "plan", "export", "all_reduce/double_binary_tree", "--ranks", "65536", "-o", path)
	require.ErrorContains(t, err, "too large for a file")
	require.NoFileExists(t, path)
}

func TestWrongUse(t *testing.T) {
	for args, words := range map[string]string{
		"plan list dance":                      `unknown collective "dance"`,
		"plan list broadcast reduce":           "usage: goccl plan list [COLLECTIVE]",
		"plan draw":                            "usage: goccl plan draw PLAN",
		"plan draw none.txt":                   "there is no file none.txt",
		"plan list al_reduce":                  "did you mean all_reduce?",
		"plan list send":                       "send has no plans; these have: [broadcast",
		"plan show ring":                       "ring is an algorithm: all_gather/ring, ",
		"plan show all_reduce/rin":             "did you mean ring?",
		"plan show all_reduce/":                `unknown algorithm "" for all_reduce`,
		"plan show /":                          "/ is a folder; a plan is COLLECTIVE/ALGORITHM",
		"plan show ./none":                     "there is no file ./none",
		"plan show dir/none.json":              "there is no file dir/none.json",
		"plan show /dev/null/none":             "not a directory",
		"plan show al_reduce/ring":             `no file al_reduce/ring, and it is no plan of the catalogue: unknown collective "al_reduce"`,
		"plan show nofile":                     `there is no file nofile, and it is no plan of the catalogue: unknown collective "nofile"`,
		"plan show all_reduce --ranks 65537":   "--ranks 65537: want 1 to 65536",
		"plan show all_reduce --ranks -1":      "--ranks -1: want 1 to 65536",
		"plan show broadcast --root -1":        "--root -1: want 0 or more",
		"plan show barrier --root 1":           "has no root",
		"plan show barrier --rank -2":          "--rank -2: want 0 or more",
		"plan export barrier -o /none/x":       "/none/x",
		"plan draw all_reduce/ring --ranks 64": "too many to draw",
		"plan draw all_reduce --rank 7":        "rank 7 of a plan for 4 ranks",
		"plan draw all_reduce --shape 3x2":     "has 6 ranks, want 4",
		"plan draw all_reduce --shape 2xx":     "--shape 2xx: want up to 3 numbers",
		"plan draw all_reduce --shape 1x1x2x2": "want up to 3 numbers",
		"plan export all_reduce --format xml":  "want text or json",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, words, args)
	}
}
