package fault

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	const here, other = 2, 0
	for _, tt := range []struct {
		err  *Error
		self int
		code Code
		who  []int
		text string
	}{
		{Peer(PeerLost, 3, "process 71 has died"), other, PeerLost, []int{3},
			"goccl: peer lost (rank 3): rank 2 reports: process 71 has died"},
		{&Error{Code: PeerLost, Peer: 5, Ranks: []int{5, 3}, Op: "barrier, seq 4"}, other, PeerLost, []int{3, 5},
			"goccl: peer lost (ranks 3, 5): rank 2 reports, in barrier, seq 4"},
		{New(Aborted, "the user said so"), other, Aborted, []int{here},
			"goccl: aborted (rank 2): rank 2 reports: the user said so"},
		{Wrap(System, errors.New("no space left"), "no memory"), other, System, []int{here},
			"goccl: system error (rank 2): rank 2 reports: no memory: no space left"},
		{Peer(PeerLost, 1, "the wire was cut"), 1, PeerLost, []int{here}, // rank 1 knows that it is alive
			"goccl: peer lost (rank 2): rank 2 reports: the wire was cut"},
		{Peer(Timeout, 1, "a\nb\x00"), other, Timeout, []int{1}, "goccl: timeout (rank 1): rank 2 reports: a b "},
	} {
		text := tt.err.Report(here)
		require.LessOrEqual(t, len(text), MaxReport)
		e, err := ParseReport(text, tt.self, 8)
		require.NoError(t, err)
		require.ErrorIs(t, e, tt.code)
		require.Equal(t, tt.who, e.Culprits())
		require.Equal(t, tt.who[0], e.Peer)
		require.Equal(t, tt.text, e.Error())
	}
}

// TestReportHasProof passes on what other ranks compare, unless it is too long.
func TestReportHasProof(t *testing.T) {
	for _, n := range []int{0, 1, mostProof, mostProof + 1} {
		found := Peer(Mismatch, 3, "%s", strings.Repeat("x", mostText))
		found.Proof = make([]byte, n)
		text := found.Report(2)
		require.LessOrEqual(t, len(text), MaxReport)
		e, err := ParseReport(text, 0, 8)
		require.NoError(t, err)
		if n > mostProof {
			n = 0
		}
		require.Len(t, e.Proof, n)
	}
}

// TestReportIsBounded has long texts and many ranks.
func TestReportIsBounded(t *testing.T) {
	long := strings.Repeat("é\u2028\"<", 5000)
	many := make([]int, 5000)
	for i := range many {
		many[i] = 60_000 + i
	}
	whole := &Error{Code: PeerLost, Peer: many[0], Ranks: many, Op: long, Text: long, Cause: errors.New(long)}
	text := whole.Report(64999)
	require.LessOrEqual(t, len(text), MaxReport)
	e, err := ParseReport(text, 0, 1<<16)
	require.NoError(t, err)
	require.Len(t, e.Ranks, mostRanks)
	require.Contains(t, e.Text, "…")
}

func TestNoReport(t *testing.T) {
	for _, text := range []string{
		"", "x", "{}", "[]", "null", `{"code":4,"ranks":[8],"from":0}`, `{"code":4,"ranks":[-1],"from":0}`,
		`{"code":4,"ranks":[],"from":0}`, `{"code":0,"ranks":[1],"from":0}`, `{"code":99,"ranks":[1],"from":0}`,
		`{"code":4,"ranks":[1],"from":8}`, `{"code":4,"ranks":[1e99],"from":0}`,
		`{"code":4,"ranks":[1],"from":0,"text":"` + strings.Repeat("x", MaxReport) + `"}`,
	} {
		_, err := ParseReport([]byte(text), 0, 8)
		require.ErrorIs(t, err, Internal, text)
	}
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"code":4,"ranks":[3,5],"from":2,"op":"barrier, seq 4","text":"it died"}`), 8)
	f.Add(New(Aborted, "because").Report(1), 2)
	f.Fuzz(func(t *testing.T, text []byte, ranks int) {
		e, err := ParseReport(text, 0, ranks)
		if err != nil {
			return
		}
		for _, rank := range e.Culprits() {
			if rank < 0 || rank >= ranks {
				t.Fatalf("rank %d of %d", rank, ranks)
			}
		}
		if again, err := json.Marshal(e.Error()); err != nil || len(again) > 2*MaxReport {
			t.Fatalf("%d bytes, %v", len(again), err)
		}
	})
}
