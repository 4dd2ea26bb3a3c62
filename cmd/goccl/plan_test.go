package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlanList(t *testing.T) {
	out, err := run(t, "plan", "list", "--json", "all_reduce")
	require.NoError(t, err)
	var rows []listed
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

// What export writes, import, verify, show and draw read.
func TestPlanFiles(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		path := filepath.Join(t.TempDir(), "plan")
		_, err := run(t, "plan", "export", "all_reduce/ring", "--ranks", "3", "--format", format, "-o", path)
		require.NoError(t, err)
		for _, verb := range []string{"plan import", "verify"} {
			out, err := run(t, append(strings.Fields(verb), path)...)
			require.NoError(t, err)
			require.Contains(t, out, "ring: all_reduce on 3 ranks\nverified: right result")
			require.Contains(t, out, "a rank sends up to 4 chunks")
		}
		out, err := run(t, "plan", "show", path)
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
	_, err = run(t, "plan", "import", malformed)
	require.ErrorContains(t, err, "malformed: goccl: invalid argument: plan:8:7: found")
	require.ErrorContains(t, err, "recvreduse")
	wrong := write("wrong", strings.Replace(good, " final", "", 1))
	_, err = run(t, "verify", wrong)
	require.ErrorContains(t, err, "post-scaling")
	_, err = run(t, "plan", "import", filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "cannot read the plan")
}

func TestVerifyAll(t *testing.T) {
	out, err := run(t, "verify", "--all", "--ranks", "1-5", "--coll", "broadcast", "--jobs", "2")
	require.NoError(t, err)
	require.Contains(t, out, "binomial")
	require.Contains(t, out, "  15  ", "every root of 1 to 5 ranks")
	require.Contains(t, out, "algorithms verified, all right")
	out, err = run(t, "verify", "--all", "--ranks", "8", "--algo", "hierarchical", "--coll", "all_gather", "--shape", "4x2")
	require.NoError(t, err)
	require.Contains(t, out, "hierarchical.ring.ring")
	out, err = run(t, "verify", "--all", "--ranks", "8", "--algo", "hierarchical.ring.ring.ring")
	require.NoError(t, err)
	require.Contains(t, out, "hierarchical.ring.ring.ring")
}

func TestWrongUseOfPlans(t *testing.T) {
	for args, words := range map[string]string{
		"plan list dance":                                 `unknown collective "dance"`,
		"plan list broadcast reduce":                      "takes one collective at most",
		"plan draw":                                       "needs one COLLECTIVE",
		"plan draw none.txt":                              "there is no file none.txt",
		"plan draw all_reduce/ring --ranks 64":            "too many to draw",
		"plan draw all_reduce --rank 7":                   "rank 7 of a plan for 4 ranks",
		"plan draw all_reduce --shape 3x2":                "has 6 ranks, want 4",
		"plan draw all_reduce --shape 2xx":                "--shape 2xx: want up to 3 numbers",
		"plan draw all_reduce --shape 1x1x2x2":            "want up to 3 numbers",
		"plan export all_reduce --format xml":             "want text or json",
		"plan import":                                     "needs one FILE",
		"verify":                                          "usage: goccl verify FILE",
		"verify --all x":                                  "usage: goccl verify FILE",
		"verify --all --ranks 0":                          "--ranks 0: want",
		"verify --all --ranks 4-2":                        "--ranks 4-2: want",
		"verify --all --jobs 0":                           "--jobs 0: want 1 or more",
		"verify --all --coll dance":                       `unknown collective "dance"`,
		"verify --all --algo dance":                       "no algorithm fits",
		"verify --all --shape x":                          "--shape x",
		"verify --all --ranks 4 --algo ring --shape 9x9x": "--shape 9x9x",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, words, args)
	}
}
