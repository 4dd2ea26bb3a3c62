package tune

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/humanize"
)

// table parses rows that must be valid.
func table(t testing.TB, rows ...string) *Table {
	t.Helper()
	made, err := ParseTable([]byte(Header + "\n" + strings.Join(rows, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestTableChoice(t *testing.T) {
	const K = 1 << 10
	own := table(t,
		"all_reduce 2   no  any 1K  one_shot",
		"all_reduce 2   any any 1K  bcube # of level 3",
		"all_reduce 2   any any 8K  two_shot",
		"all_reduce 3-4 any 1 any two_shot_window",
		"all_reduce 3-4 any 1 any rabenseifner",
		"all_reduce 9+  yes any 1K  naive",
		"all_to_all 2+  any any any bruck",
		"barrier    2+  any 2+  any tree")
	for _, test := range []struct {
		coll   dtype.Collective
		ranks  int
		bytes  int64
		on     kind
		wishes Wishes
		want   string // "" for the choice without the table
	}{
		{dtype.AllReduce, 2, 0, kind{}, Wishes{}, "one_shot"},
		{dtype.AllReduce, 2, K, kind{}, Wishes{}, "one_shot"},
		{dtype.AllReduce, 2, K, kind{crowded: true}, Wishes{}, "bcube"},
		{dtype.AllReduce, 2, K, kind{crowded: true}, Wishes{Determinism: 3}, "two_shot"},
		{dtype.AllReduce, 2, K + 1, kind{}, Wishes{}, "two_shot"},
		{dtype.AllReduce, 2, 8 * K, kind{hosts: 1}, Wishes{}, "two_shot"},
		{dtype.AllReduce, 2, 8*K + 1, kind{}, Wishes{}, ""},
		{dtype.AllReduce, 3, 8, kind{}, Wishes{}, ""},
		{dtype.AllReduce, 3, 8, kind{hosts: 1}, Wishes{}, "rabenseifner"},
		{dtype.AllReduce, 4, 1 << 50, kind{hosts: 1, slot: 64}, Wishes{}, "two_shot_window"},
		{dtype.AllReduce, 4, 8, kind{hosts: 1}, Wishes{Determinism: 4}, ""},
		{dtype.AllReduce, 5, 8, kind{hosts: 1, slot: 64}, Wishes{}, ""},
		{dtype.AllReduce, 8, 8, kind{crowded: true}, Wishes{}, ""},
		{dtype.AllReduce, 9, 8, kind{crowded: true}, Wishes{}, "naive"},
		{dtype.AllReduce, 60000, K, kind{crowded: true}, Wishes{}, "naive"},
		{dtype.AllReduce, 9, 8, kind{}, Wishes{}, ""},
		{dtype.AllToAll, 2, 0, kind{}, Wishes{Determinism: 4}, "bruck"},
		{dtype.AllToAll, 1, 0, kind{}, Wishes{}, ""},
		{dtype.Barrier, 5, 0, kind{}, Wishes{}, "tree"},
		{dtype.Barrier, 5, 0, kind{hosts: 1}, Wishes{}, ""},
		{dtype.Send, 5, 0, kind{}, Wishes{}, ""},
		{dtype.AllReduce, 2, 0, kind{}, Wishes{Override: map[dtype.Collective]string{dtype.AllReduce: "ring"}}, "ring"},
	} {
		without := choose(test.coll, test.ranks, test.bytes, test.on, test.wishes)
		test.wishes.Table = own
		if got := choose(test.coll, test.ranks, test.bytes, test.on, test.wishes); got != test.want &&
			(test.want != "" || got != without) {
			t.Errorf("%v on %d ranks, %d bytes, %+v: %s, want %q (without: %s)",
				test.coll, test.ranks, test.bytes, test.on, got, test.want, without)
		}
	}
}

func TestTableErrors(t *testing.T) {
	good := "all_reduce 2 any any 1K ring"
	for _, test := range []struct{ text, want string }{
		{"", "table:1:1: want \"goccl tune table 2\" first"},
		{"# only a comment\n\n", "table:1:1: want"},
		{"\n  goccl tune table 1", "table:2:3: want"},
		{good, "table:1:1: want"},
		{Header + " 3", "table:1:1: want"},
		{Header + "\n" + good + " more",
			"table:2:30: a row has 6 words (collective, ranks, oversubscribed, hosts, size, algorithm), this one has 7"},
		{Header + "\n all_reduce 2",
			"table:2:13: a row has 6 words (collective, ranks, oversubscribed, hosts, size, algorithm), this one has 2"},
		{Header + "\nall_reduces 2 any any 1K ring", `table:2:1: collective "all_reduces": want one of broadcast`},
		{Header + "\nsend 2 any any any ring", `table:2:1: collective "send"`},
		{Header + "\nall_reduce 1 any any 1K ring", `table:2:12: ranks "1": want 2, 3-4 or 9+`},
		{Header + "\nall_reduce 4-3 any any 1K ring", `ranks "4-3"`},
		{Header + "\nall_reduce 3-4+ any any 1K ring", `ranks "3-4+"`},
		{Header + "\nall_reduce +3 any any 1K ring", `ranks "+3"`},
		{Header + "\nall_reduce - any any 1K ring", `ranks "-"`},
		{Header + "\nall_reduce 65537 any any 1K ring", `ranks "65537"`},
		{Header + "\nall_reduce 99999999999999999999 any any 1K ring", `ranks "9999`},
		{Header + "\nall_reduce 2 maybe any 1K ring", `table:2:14: oversubscribed "maybe": want any, no, yes`},
		{Header + "\nall_reduce 2 any Yes 1K ring", `table:2:18: hosts "Yes": want 1, 2-4, 2+ or any, from 1 to 65536 hosts`},
		{Header + "\nall_reduce 2 any any 17T ring", `table:2:22: size "17T": want ` + humanize.SizeForm + "; or any"},
		{Header + "\nall_reduce 2 any any -1 ring", `size "-1"`},
		{Header + "\nall_reduce 2 any any K ring", `size "K"`},
		{Header + "\nall_reduce 2 any any 1024KX ring", `size "1024KX"`},
		{Header + "\nbarrier 2 any any 1K tree",
			`table:2:19: size "1K": not all ranks know the size of barrier; want any`},
		{Header + "\nall_reduce 2 any any 1K wring",
			`table:2:25: algorithm "wring": unknown; all_reduce has direct, ring`},
		{Header + "\nall_reduce 2 any any 1K hierarchical.rings.direct",
			`algorithm "hierarchical.rings.direct": unknown`},
		{Header + "\nall_reduce 2 any 2+ 1K two_shot_window", `algorithm "two_shot_window": it reads windows`},
		{Header + "\n# a comment\n" + good + "\n\n" + good, "table:5:1: this row is never used, line 3 comes first"},
		{Header + "\n" + good + "\nall_reduce 2 yes 2+ 512 naive", "table:3:1: this row is never used, line 2"},
		{Header + "\nall_reduce 2+ any any any direct\n all_reduce 9 any any any ring",
			"table:3:2: this row is never used, line 2"},
		{Header + strings.Repeat("\n", MaxTable),
			"table:1:1: the file is too large; a table has at most 1048576 bytes"},
		{many(maxRows + 1), "table:2050:1: too many rows; a table has at most 2048"},
	} {
		_, err := ParseTable([]byte(test.text))
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80q: got %v, want %q", test.text, err, test.want)
		}
	}
	for _, text := range []string{
		"# first\r\n" + Header + "\r\n" + good + "\r\n",
		Header + "\n" + good + "\nall_reduce 2 any any 2K ring",        // for a larger size
		Header + "\n" + good + "\nall_reduce 2 any any 1K direct",      // reduces in rank order
		Header + "\n" + good + "\nall_reduce 2-3 any any 1K naive",     // other ranks
		Header + "\nall_reduce 2 any any any two_shot_window\n" + good, // without windows
		Header + "\nall_reduce 2 yes any any ring\n" + good,
		Header + "\nall_reduce 4+ any 2-3 any hierarchical.ring.direct",
		Header + "\nall_reduce 4 any 2-3 1K direct\nall_reduce 4 any 3-4 1K ring", // other hosts
		many(maxRows),
	} {
		if _, err := ParseTable([]byte(text)); err != nil {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}

// many returns the text of a table of n rows.
func many(n int) string {
	var b strings.Builder
	b.WriteString(Header)
	for i := range n {
		b.WriteString("\nbroadcast 2 any any " + strconv.Itoa(i) + " flat")
	}
	return b.String()
}

// TestTableText checks that a table which is written and read again is the same; comments and
// spaces are not part of it.
func TestTableText(t *testing.T) {
	one := table(t, "all_reduce 2 any any 1536 ring", "broadcast 9+ yes 2+ 3M flat",
		"all_reduce 3-4 no 1 any direct", "reduce 2 any any 0 flat")
	again, err := ParseTable([]byte(one.Text()))
	if err != nil || !slices.Equal(again.Rows(), one.Rows()) || again.Hash() != one.Hash() {
		t.Errorf("%v, read again %v: %v", one.Rows(), again.Rows(), err)
	}
	made, err := NewTable(one.Rows())
	if err != nil || made.Text() != one.Text() {
		t.Errorf("made of rows: %v, %v", made, err)
	}
	if _, err := NewTable(append(one.Rows(), one.Rows()...)); !errors.Is(err, fault.Invalid) {
		t.Errorf("rows twice: %v", err)
	}
	if other := table(t, "all_reduce 2 any any 1537 ring"); other.Hash() == one.Hash() {
		t.Error("another table has the same hash")
	}
	var none *Table
	if none.Rows() != nil || none.choose(Call{dtype.AllReduce, 8}, kind{}.of(2), &Wishes{}) != "" {
		t.Error("nil has rows")
	}
}

// TestDefaultTable checks that the algorithms of the library's rows exist, and make a plan for
// every number of ranks that a row is for.
func TestDefaultTable(t *testing.T) {
	rows := DefaultTable().Rows()
	if len(rows) == 0 {
		t.Fatal("no rows")
	}
	for _, row := range rows {
		a, err := algo.Find(row.Coll, row.Algorithm)
		if err != nil {
			t.Fatal(err)
		}
		for ranks := row.First; ranks <= min(row.Last, 256); ranks++ {
			if _, err := a.Make(plan.Spec{Coll: row.Coll, Ranks: ranks}); err != nil {
				t.Errorf("%v: %v", row, err)
			}
		}
	}
}

// TestChoice asks for all kinds of calls: there is a choice, always the same, that the group can
// run, and choosing allocates nothing.
func TestChoice(t *testing.T) {
	own := table(t, "all_reduce 2 any 1 1K two_shot_window", "reduce 3+ any any any chain",
		"broadcast 2+ yes any any flat")
	for _, coll := range dtype.Collectives() {
		for _, ranks := range []int{1, 2, 3, 4, 5, 7, 8, 9, 16, 64, 100} {
			for flags := range 64 {
				k, wishes := kind{crowded: flags&1 != 0, hosts: flags & 6 / 2, slot: flags & 8 << 16}, Wishes{
					Determinism: 2 + flags>>4&1*2}
				if flags&32 != 0 {
					wishes.Table = own
				}
				on := k.of(ranks)
				for _, size := range []int64{0, 8, 100, 1 << 10, 9999, 32 << 10, 1 << 20, 64 << 20, 1 << 50} {
					name := Choose(Call{coll, size}, on, &wishes)
					for range 3 {
						if again := Choose(Call{coll, size}, on, &wishes); again != name {
							t.Fatalf("%s, then %s", name, again)
						}
					}
					a, err := algo.Find(coll, name)
					if err != nil {
						t.Fatalf("%v on %d ranks, %d bytes, %+v: %v", coll, ranks, size, k, err)
					}
					p, err := a.Make(plan.Spec{Coll: coll, Ranks: ranks})
					if err != nil || p.Needs&plan.Gets != 0 && on.Slot() == 0 ||
						coll.Reduces() && wishes.Determinism > 2 && a.Level < rankOrder {
						t.Errorf("%v on %d ranks, %d bytes, %+v: %s, %v", coll, ranks, size, k, name, err)
					}
				}
			}
		}
	}
	on, wishes := kind{hosts: 1}.of(4), &Wishes{Table: own}
	if n := testing.AllocsPerRun(100, func() { Choose(Call{dtype.AllReduce, 1 << 20}, on, wishes) }); n != 0 {
		t.Errorf("%v allocations a choice", n)
	}
}

func TestRows(t *testing.T) {
	wishes := Wishes{Table: table(t, "barrier 2 any 2+ any tree", "barrier 2 any 1 any dissemination",
		"all_reduce 2 any any any two_shot_window", "all_reduce 2-9 any any any ring")}
	list := func(k kind) (names []string) {
		wishes.Rows(k.of(2), func(r Row) { names = append(names, r.Algorithm) })
		return names
	}
	if got := list(kind{}); !slices.Equal(got[:2], []string{"ring", "tree"}) {
		t.Errorf("apart: %v", got)
	}
	want := []string{"two_shot_window", "ring", "dissemination"}
	if got := list(kind{hosts: 1, slot: 64}); !slices.Equal(got[:3], want) {
		t.Errorf("with windows: %v", got)
	}
}

var refusal = regexp.MustCompile(`table:[1-9][0-9]*:[1-9][0-9]*: .`)

// FuzzParseTable checks that every file is refused with a typed error that has a place, or is the
// same when written and read again.
func FuzzParseTable(f *testing.F) {
	f.Add(defaultText)
	f.Add([]byte(Header + "\nall_reduce 3-4 yes 2+ 32K direct # comment\n\tbarrier 2+ any any any tree\r\n"))
	f.Add([]byte(Header + "\nbroadcast 65536 any any 1024G flat\nbroadcast 2-65536 no any 1 chain"))
	f.Add([]byte(Header + "\nsend 0 maybe 9 -1K #"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		made, err := ParseTable(text)
		if err != nil {
			if !errors.Is(err, fault.Invalid) || !refusal.MatchString(err.Error()) {
				t.Fatalf("a refusal without type or place: %v", err)
			}
			return
		}
		again, err := ParseTable([]byte(made.Text()))
		if err != nil || again.Hash() != made.Hash() || !slices.Equal(again.Rows(), made.Rows()) {
			t.Fatalf("written as %q: %v", made.Text(), err)
		}
		for _, row := range made.Rows() {
			name := choose(row.Coll, row.First, row.Bytes, kind{hosts: 1, slot: 64}, Wishes{Table: made})
			if _, err := algo.Find(row.Coll, name); err != nil {
				t.Fatalf("%v: %v", row, err)
			}
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	b.ReportAllocs()
	on, wishes := kind{}.of(9), new(Wishes)
	for b.Loop() {
		Choose(Call{dtype.AllReduce, 1 << 20}, on, wishes)
	}
}
