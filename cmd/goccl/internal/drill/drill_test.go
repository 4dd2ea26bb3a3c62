package drill

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	_ "github.com/goccl/goccl/internal/scratch"
)

// TestJudge shows the judge what a rank may report, and what is wrong with it.
func TestJudge(t *testing.T) {
	const early, late = 10 * time.Millisecond, 2 * time.Second
	death := &expectation{codes: []string{"peer lost"}, culprits: []int{1}, within: time.Second,
		evidence: regexp.MustCompile("signal 9")}
	well := &expectation{slowest: time.Second}
	killed := &failure{Code: "peer lost", Culprits: []int{1}, Text: "rank 1 was killed by signal 9"}
	closed := &rankAfter{Later: killed}
	for name, tt := range map[string]struct {
		e    *expectation
		t    testimony
		says string // "" if nothing is wrong
	}{
		"right":    {death, testimony{Since: early, End: &rankEnd{Error: killed}, After: closed}, ""},
		"hang":     {death, testimony{Silence: "it has only said: calling"}, "HANG: it has only said: calling"},
		"no error": {death, testimony{End: &rankEnd{}, After: closed}, "ends well, and should have failed"},
		"late": {
			death, testimony{Since: late, End: &rankEnd{Error: killed}, After: closed},
			"after 2.00 s, more than 1.00 s",
		},
		"well":       {well, testimony{End: &rankEnd{Slowest: early}, After: &rankAfter{}}, ""},
		"error":      {well, testimony{End: &rankEnd{Error: killed}}, "fails: rank 1 was killed"},
		"wrong":      {well, testimony{End: &rankEnd{Wrong: 3}}, "3 elements are wrong"},
		"slow round": {well, testimony{End: &rankEnd{Slowest: late}}, "a round takes 2.00 s"},
		"class": {
			death, testimony{End: &rankEnd{Error: &failure{"timeout", []int{1}, "signal 9"}}},
			`the error is "timeout", not peer lost`,
		},
		"an innocent": {
			death, testimony{End: &rankEnd{Error: &failure{"peer lost", []int{2}, "signal 9"}}},
			"names rank 2, not rank 1",
		},
		"an innocent too": {
			death, testimony{End: &rankEnd{Error: &failure{"peer lost", []int{1, 2}, "signal 9"}}},
			"names ranks 1 2, not rank 1",
		},
		"nobody": {
			death, testimony{End: &rankEnd{Error: &failure{"peer lost", nil, "signal 9"}}},
			"names nobody, not rank 1",
		},
		"no evidence": {
			death, testimony{End: &rankEnd{Error: &failure{"peer lost", []int{1}, "peer left"}}},
			`no evidence like "signal 9"`,
		},
		"lives on": {
			death, testimony{End: &rankEnd{Error: killed}, After: &rankAfter{}},
			"a later call of a group that has failed ends well",
		},
		"another error later": {
			death, testimony{End: &rankEnd{Error: killed}, After: &rankAfter{Later: &failure{Code: "peer left"}}},
			"a later call fails with another error",
		},
		"slow later": {
			death, testimony{End: &rankEnd{Error: killed}, After: &rankAfter{Later: killed, Took: late}},
			"a later call fails after 2.00 s",
		},
		"slow close": {
			death, testimony{End: &rankEnd{Error: killed}, After: &rankAfter{Later: killed, Close: late}},
			"closing takes 2.00 s",
		},
		"descriptors": {
			death,
			testimony{End: &rankEnd{Error: killed}, After: &rankAfter{Later: killed, Left: []string{"7 socket:[1]"}}},
			"left open: 7 socket:[1]",
		},
		"silent after": {
			death, testimony{End: &rankEnd{Error: killed}, Silence: "its process has ended"},
			"HANG after its end: its process has ended",
		},
		"whoever": {
			&expectation{codes: []string{"mismatch"}, within: time.Second, anyone: true},
			testimony{End: &rankEnd{Error: &failure{"mismatch", []int{4}, ""}}}, "",
		},
		"refused or not": {
			&expectation{codes: []string{"mismatch"}, orWell: true, lives: true},
			testimony{End: &rankEnd{}, After: &rankAfter{}}, "",
		},
		"done before": {
			&expectation{codes: []string{"peer lost"}, culprits: []int{1}, within: time.Second, orNext: true},
			testimony{End: &rankEnd{}, After: closed}, "",
		},
		"done before, and nobody named": {
			&expectation{codes: []string{"peer lost"}, culprits: []int{2}, within: time.Second, orNext: true},
			testimony{End: &rankEnd{}, After: closed}, "names rank 1, not rank 2",
		},
		"one of them": {
			&expectation{codes: []string{"peer lost"}, culprits: []int{1, 2}, some: true, within: time.Second},
			testimony{End: &rankEnd{Error: killed},
				After: &rankAfter{Later: &failure{"peer lost", []int{1, 2}, ""}}}, "",
		},
		"none of them": {
			&expectation{codes: []string{"peer lost"}, culprits: []int{0, 2}, some: true, within: time.Second},
			testimony{End: &rankEnd{Error: killed}}, "names rank 1, not ranks 0 2",
		},
		"a message only": {
			&expectation{codes: []string{"mismatch"}, within: time.Second, lives: true},
			testimony{End: &rankEnd{Error: &failure{"mismatch", nil, ""}}, After: &rankAfter{Later: killed}},
			"a later call of a group that lives fails",
		},
		"not joined": {
			&expectation{codes: []string{"system error"}, within: time.Second},
			testimony{End: &rankEnd{Error: &failure{"system error", nil, ""}, During: "join"}, After: &rankAfter{}}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := strings.Join(tt.e.judge(&tt.t), "\n")
			if tt.says == "" {
				require.Empty(t, said)
			} else {
				require.Contains(t, said, tt.says)
				require.NotContains(t, said, "\n")
			}
		})
	}
}

// TestDrillCells checks that every fault meets every collective and road that it has, also in the
// part that CI runs.
func TestDrillCells(t *testing.T) {
	all := choice{ranks: []int{3, 6}}.cells()
	seen := map[cell]bool{}
	for _, c := range all {
		require.False(t, seen[c], "%v", c)
		seen[c] = true
		require.Contains(t, c.culprits(), c.culprit())
		require.Len(t, c.culprits(), max(1, faultNamed(c.Fault).deaths))
		for i, rank := range c.culprits() {
			require.Less(t, rank, c.Ranks)
			require.False(t, i > 0 && rank <= c.culprits()[i-1])
		}
		require.Less(t, c.root(), c.Ranks)
	}
	part := map[string]map[string]bool{}
	for _, c := range all {
		if !c.inPart() {
			continue
		}
		if part[c.Fault] == nil {
			part[c.Fault] = map[string]bool{}
		}
		part[c.Fault][c.Road], part[c.Fault][collName(c.Coll)] = true, true
	}
	require.Len(t, part, len(drillFaults()))
	for _, f := range drillFaults() {
		for _, road := range roads {
			require.Equal(t, f.roads == nil || slices.Contains(f.roads, road), part[f.name][road],
				"%s by %s", f.name, road)
		}
	}
	chosen := choice{
		[]string{"kill", "late"}, []string{"all_reduce", "send_recv"}, []string{"shm", "hosts"}, []int{4}}.cells()
	require.Len(t, chosen, 2*2*2)
	for args, says := range map[string]string{
		"--faults kil":                     `there is no "kil", only kill,`,
		"--op sum":                         `there is no "sum", only broadcast,`,
		"--transport host":                 "did you mean hosts?",
		"--ranks 2":                        "want numbers from 3 to 64",
		"--faults silence --transport shm": "no cell is like that",
		"--timeout 2m":                     "want 100ms to 1m",
		"--jobs 0":                         "--jobs 0: want 1 or more",
	} {
		err := cli.Execute(cli.Root(Command()), append([]string{"drill"}, strings.Fields(args)...), io.Discard)
		require.ErrorContains(t, err, says)
		require.Equal(t, 2, cli.Status(err))
	}
}

// TestDrillMatrix prints outcomes that come in any order.
func TestDrillMatrix(t *testing.T) {
	cells := choice{
		[]string{"kill", "mismatch-op"}, []string{"barrier", "all_reduce"}, []string{"shm", "hosts"}, []int{3}}.cells()
	var out, file bytes.Buffer
	p := &printer{out: &out, cells: cells, done: map[cell]*outcome{}, json: json.NewEncoder(&file)}
	p.skip(roadHosts, "no namespaces")
	for i := range cells {
		c := cells[len(cells)-1-i]
		if c.Road == roadHosts {
			continue
		}
		o := &outcome{Cell: c, Culprits: []int{0}, Passed: c.Fault == "kill", Slowest: 30 * time.Millisecond}
		if c.Coll == dtype.Barrier {
			o.Stalls = []time.Duration{300 * time.Millisecond}
		}
		if !o.Passed {
			o.Complaints = []string{"rank 2 names rank 0, not rank 1"}
			lost := &rankEnd{Error: &failure{Text: "peer lost (rank 0)"}}
			o.Ranks = []*testimony{{Rank: 2, End: lost, Stderr: "a warning"}}
		}
		p.add(o)
	}
	require.ErrorContains(t, p.end(3*time.Second), "1 cells of the drill failed")
	require.Equal(t, `seconds until the slowest survivor has its error (of a round, where there must be none)
fault              collective         shm 3  hosts 3
kill               all_reduce          0.03        -
kill               barrier             0.03        -
mismatch-op        all_reduce          FAIL        -

  mismatch-op × all_reduce × shm × 3 ranks, rank 0 has the fault: FAILED in 0.00 s
    rank 2 names rank 0, not rank 1
    rank 2: after 0.00 s: peer lost (rank 0)
      printed: a warning

run again, since the machine stalled: kill × barrier × shm × 3 ranks: [300ms]

skipped: hosts: no namespaces

2 cells passed, 1 failed, 3 skipped in 3 s
`, out.String())
	require.Equal(t, 3, strings.Count(file.String(), "\n"))
}

// TestDrill runs one cell with real processes.
func TestDrill(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "goccl")
	build, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput()
	require.NoError(t, err, "%s", build)
	if unsupported != nil {
		err := cli.Execute(cli.Root(Command()), []string{"drill"}, io.Discard)
		require.ErrorIs(t, err, unsupported)
		return
	}
	said, err := exec.Command(binary, "drill", "--faults", "kill", "--op", "all_reduce", "--transport", "shm",
		"--ranks", "3", "--verbose").CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "1 cells passed, 0 failed, 0 skipped")
	require.Contains(t, string(said), "killed by signal 9 (SIGKILL)")
}
