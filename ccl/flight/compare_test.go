package flight

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the expected reports of testdata anew")

// TestReports compares made-up records. A file of testdata says in its first lines what it is
// about. Then come the records, and after ---- the report.
//
//	rank 2 written 20.5              a record, written at this second
//	group tp 2,3                     the members of a group; before its operations
//	all_reduce 4 f32 sum 1 1.25      a call of the last group, with its elements, type, operator or
//	                                 -, and the seconds from when to when; "failed" if it has failed,
//	                                 - if it is under way
//	send 0->1 4 f32 - 1 -            a message
func TestReports(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			script, want, _ := strings.Cut(string(text), "----\n")
			var got strings.Builder
			report := Compare(made(t, script), nil)
			require.NoError(t, report.Print(&got))
			fmt.Fprintf(&got, "different: %t\n", report.Different)
			if *rewrite {
				require.NoError(t, os.WriteFile(path, []byte(script+"----\n"+got.String()), 0o644))
				return
			}
			require.Equal(t, want, got.String(), "go test ./ccl/flight -rewrite writes it anew")
		})
	}
}

func second(t *testing.T, text string) time.Time {
	s, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return time.Unix(1000, int64(s*1e9))
}

// made makes the records of a script.
func made(t *testing.T, script string) (records []*Record) {
	var r *Record
	var name string
	var colls, messages, id int64
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "rank":
			rank, err := strconv.Atoi(words[1])
			require.NoError(t, err)
			r = &Record{Rank: rank, Written: second(t, words[3]), ours: true, groups: map[string]members{}}
			records = append(records, r)
		case words[0] == "group":
			name, colls, messages, id = words[1], 0, 0, 0
			var m members
			for _, rank := range strings.Split(words[2], ",") {
				n, err := strconv.Atoi(rank)
				require.NoError(t, err)
				m.ranks = append(m.ranks, n)
			}
			r.groups[name] = m
		case words[0] == "skip": // the operations before were overwritten
			n, err := strconv.ParseInt(words[1], 10, 64)
			require.NoError(t, err)
			colls, id = colls+n, id+n
		default:
			id++
			e := entry{group: name, name: words[0], id: id, root: -1, tag: -1}
			if e.message = strings.Contains(words[1], "->") || strings.Contains(words[1], "<-"); e.message {
				messages++
				e.name, e.seq, words = words[0]+" "+words[1], messages, words[1:]
			} else {
				colls++
				e.seq = colls
			}
			n, err := strconv.ParseInt(words[1], 10, 64)
			require.NoError(t, err)
			e.in, e.out, e.typ = n, n, strings.Trim(words[2], "-")
			if at := strings.Index(words[3], "@"); at >= 0 {
				e.root, err = strconv.ParseInt(words[3][at+1:], 10, 64)
				require.NoError(t, err)
				words[3] = words[3][:at]
			}
			e.op = strings.Trim(words[3], "-")
			e.begun = second(t, words[4])
			switch words[5] {
			case "failed":
				e.state = failed
			case "-":
			default:
				e.state, e.over = ended, second(t, words[5])
			}
			r.entries = append(r.entries, e)
		}
	}
	return records
}

func TestFit(t *testing.T) {
	g := &group{ranks: []int{4, 5, 6, 7}}
	for name, want := range map[string]string{
		"send 1->3": "send of 2 x f32 to rank 7", "recv 1<-0": "recv of 2 x f32 from rank 4",
		"recv 1<-?": "recv of 2 x f32 from any rank", "send 1->9": "send 1->9 of 2 x f32",
		"send 1": "send 1 of 2 x f32", "all_reduce": "all_reduce of 2 x f32", "recv 1<--5": "recv 1<--5 of 2 x f32",
	} {
		e := entry{name: name, in: 2, typ: "f32", root: -1, tag: -1}
		require.Equal(t, want, e.describe(g))
	}
	for want, ranks := range map[string][]int{
		"rank 3": {3}, "ranks 1, 2": {2, 1}, "ranks 0-2, 4": {0, 1, 2, 4}, "ranks 0, 5-8": {5, 6, 7, 8, 0},
	} {
		require.Equal(t, want, ranksText(ranks))
	}
	require.Equal(t, "1.5 ms", secondsText(1500*time.Microsecond))
	require.Equal(t, "0.3 s", secondsText(300*time.Millisecond))
}
