package plan_test

import (
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// TestCornersOfTheTextForm reads corner cases of the text form that PLAN.md allows, and compares
// what the writer makes of them.
func TestCornersOfTheTextForm(t *testing.T) {
	const format = "goccl plan format 2\n"
	const head = "plan x all_to_all ranks=3 split=1 chans=1 flags=1 win=8 needs=messages+puts+gets+counts alias=none\n"
	rest := "rank 1\nrank 2\n"
	table := []struct{ name, text, want string }{
		{"keys in any order, with their defaults left out",
			"plan a-b.C_9 allreduce bytes=5.. alias = in_place ranks=001\nrank 0",
			"plan a-b.C_9 all_reduce ranks=1 split=1 chans=1 flags=0 win=0 needs=none alias=in_place bytes=5..\nrank 0\n"},
		{"a rooted collective writes its root", "plan x reduce ranks=1\nrank 0",
			"plan x reduce ranks=1 root=0 split=1 chans=1 flags=0 win=0 needs=none alias=none\nrank 0\n"},
		{"three levels, and bytes of which one is 0", "plan x barrier ranks=1 shape=1 x1x1 bytes=0..7#\nrank 0#\n",
			"plan x barrier ranks=1 shape=1x1x1 split=1 chans=1 flags=0 win=0 needs=none alias=none bytes=0..7\nrank 0\n"},
		{"no spaces", head + "rank0\nlane0\nsend in[0]to1after1.0\nlane1\ncopy out[0]=in[0]\n" + rest,
			head + "rank 0\n  lane 0\n    0 send in[0] to 1 after 1.0\n  lane 1\n    0 copy out[0] = in[0]\n" + rest},
		{"many spaces, tabs, CR LF, bytes in comments",
			head + "\t rank\t0 # \x00\xff\r\n tmp 0 > 1 .. 2 / 0 * 02\r\n" + rest,
			head + "rank 0\n  tmp 0>1..2/0*2\n" + rest},
		{"ranks in any order, win before tmp", head + "rank 2\nrank 1\nrank 0\nwin 0/0\ntmp 1/0",
			head + "rank 0\n  tmp 1/0\n  win 0/0\n" + rest},
		{"runs in four passes",
			head + "rank 0\ntmp 0/0 0>1/0 0>2/0 1>0/0 1>1/0 1>2/0 2/0 1/0 0/0 2/0 1/0 0/0 2>1/0\n" + rest,
			head + "rank 0\n  tmp 0..1>0..2/0 2..0/0*2 2>1/0\n" + rest},
		{"from falls last", head + "rank 0\ntmp 2..1>0..1/0*2\n" + rest, head + "rank 0\n  tmp 2..1>0..1/0*2\n" + rest},
		{"a loop is a loop, its body what is deeper",
			head + "rank 0\nlane 0\n  loop 2\n     wait 1\n   signal 1\n wait 2\n" + rest,
			head + "rank 0\n  lane 0\n    0 loop 2\n      0 wait 1\n      1 signal 1\n    4 wait 2\n" + rest},
		{"the column of a numbered line is that of its number",
			head + "rank 0\nlane 0\n 0 loop 5\n   0 wait 1\n 5  loop 1\n  5 wait 1\n" + rest,
			head + "rank 0\n  lane 0\n    0 loop 5\n      0 wait 1\n    5 loop 1\n      5 wait 1\n" + rest},
		{"a range holds in the first copy too", head + "rank 0\nlane 0\nloop 2\n wait -1 by 1 in 1:3\n" + rest,
			head + "rank 0\n  lane 0\n    0 loop 2\n      0 wait -1 by 1 in 1:3\n" + rest},
		{"a range without an advance stays, an advance of zero does not",
			head + "rank 0\nlane 0\nloop 2\n wait 5 by 0 in 1:3\n wait 1 by 0\n" + rest,
			head + "rank 0\n  lane 0\n    0 loop 2\n      0 wait 5 by 0 in 1:3\n      1 wait 1\n" + rest},
		{"one chunk, none, defaults of channel and flag",
			head + "rank 0\nlane 0\nsend in[2:3] to 1 chan 0\nrecv out[3:3] from 1\nwait 1 flag 0\n" + rest,
			head + "rank 0\n  lane 0\n    0 send in[2] to 1\n    1 recv out[3:3] from 1\n    2 wait 1\n" + rest},
		{"a remote chunk is below the win of the plan, not of this rank",
			head + "rank 0\nwin 0/0\nlane 0\nget out[0] = win[7] @ 1\n" + rest,
			head + "rank 0\n  win 0/0\n  lane 0\n    0 get out[0] = win[7]@1\n" + rest},
		{"after points of lanes that follow, twice, with advances",
			head + "rank 0\nlane 0\nloop 2\n wait 1 after 1.0 by 1 1.1 1.1 by 0\nlane 1\nsignal 1\nsignal 1\n" + rest,
			head + "rank 0\n  lane 0\n    0 loop 2\n      0 wait 1 after 1.0 by 1 1.1 1.1\n  lane 1\n    0 signal 1\n    1 signal 1\n" +
				rest},
		{"a lane without steps", head + "rank 0\nlane 0\nlane 1\n" + rest,
			head + "rank 0\n  lane 0\n  lane 1\n" + rest},
	}
	for _, test := range table {
		p, err := plan.Parse([]byte(format + test.text))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := strings.TrimPrefix(p.Text(), format); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
		roundTrip(t, p)
	}
	for _, wrong := range []string{
		"plan x barrier ranks=1 ranks=1\nrank 0",
		"plan x barrier ranks=1 bytes=0..0\nrank 0", "plan x barrier ranks=1\rrank 0",
		head + "rank 0\nlane 0\nsend in[4:4] to 1\n" + rest, head + "rank 0\nlane 0\ncopy out[0] = out[0]\n" + rest,
		head + "rank 0\nlane 0\nloop 2\nwait 1\n" + rest, head + "rank 0\ntmp\n" + rest,
		head + "rank 0\nwin 0/0*9\n" + rest,
		head + "rank 0\nlane 0\nwait 0\n" + rest, head + "rank 0\nlane 0\nwait 1 by 0 in 0:2\n" + rest, head + rest,
	} {
		if _, err := plan.Parse([]byte(format + wrong)); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}

// TestCornersOfTheJSONForm checks defaults and leniency of the JSON form.
func TestCornersOfTheJSONForm(t *testing.T) {
	const program = `"programs":[{"rank":0}]}`
	for text, ok := range map[string]bool{
		" \r\n\t{\"version\":2,\"name\":\"x\",\"collective\":\"b\\u0061rrier\",\"ranks\":1,\n" +
			program + " \n": true,
		`{"version":2,"name":"x","collective":"barrier","ranks":1,"shape":[],"needs":[],"max_bytes":0,` + program: true,

		`{"ranks":-0,"version":2,"name":"x","collective":"barrier",` + program:                false,
		`{"version":2,"collective":"barrier","ranks":1,` + program:                            false,
		`{"version":2,"name":"x","ranks":1,` + program:                                        false,
		`{"name":"x","collective":"barrier","ranks":1,` + program:                             false,
		`{"version":2,"name":"x","collective":"barrier","ranks":1,"root":null,` + program:     false,
		`{"version":2,"name":"x","collective":"barrier","ranks":1,"n\u0061me":"x",` + program: false,
	} {
		if _, err := plan.Load([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	const head = `{"version":2,"name":"x","collective":"barrier","ranks":2,"flags":1,"needs":["puts"],"programs":[{"rank":1},{"rank":0,"lanes":[[`
	for step, ok := range map[string]bool{
		`{"peer":1,"final":false,"msg_first":false,"chan":0,"after":[],"src":[],"times":1,"kind":"wait"}`: false,
		`{"peer":1,"final":false,"msg_first":false,"chan":0,"after":[],"src":[],"kind":"wait"}`:           true,
		`{"body":[{"kind":"wait","peer":1,"by":{}}],"times":2,"kind":"loop"}`:                             true,

		`{"kind":"loop","times":2,"body":[{"kind":"wait","peer":9,"by":{"peer":{"low":1,"mod":1},"src":[{},{"by":0}]}}]}`: true,

		`{"kind":"loop","times":2,"body":[{"kind":"wait","peer":1,"by":{"peer":{"low":1}}}]}`: false,
		`{"kind":"wait","peer":1,"by":{"peer":{"by":0}}}`:                                     true,
	} {
		if _, err := plan.Load([]byte(head + step + "]]}]}")); (err == nil) != ok {
			t.Errorf("%s: %v", step, err)
		}
	}
}

// TestFormulasOfPlanMD checks that the code agrees with the formulas of PLAN.md for parts and
// extents.
func TestFormulasOfPlanMD(t *testing.T) {
	for _, e := range []int{0, 1, 7, 8, 9, 1000} {
		for _, split := range []int{1, 2, 3, 8, 13} {
			q, m, next := e/split, e%split, 0
			for j := range split {
				lo, hi := plan.Part(e, split, j)
				if lo != j*q+min(j, m) || hi != (j+1)*q+min(j+1, m) || lo != next {
					t.Fatalf("part %d of %d elements in %d: [%d, %d)", j, e, split, lo, hi)
				}
				next = hi
			}
			if next != e {
				t.Fatalf("%d elements in %d parts end at %d", e, split, next)
			}
		}
	}
	const split, rank, chunk = 4, 2, 7 // part 3 of block 1
	for coll, want := range map[dtype.Collective][2]plan.Extent{
		dtype.Scatter:       {{From: 1, To: 1, Part: 3}, {From: 2, To: 2, Part: 3}},
		dtype.ReduceScatter: {{From: 1, To: 1, Part: 3}, {From: 2, To: 2, Part: 3}},
		dtype.Gather:        {{From: 2, To: 2, Part: 3}, {From: 1, To: 1, Part: 3}},
		dtype.AllGather:     {{From: 2, To: 2, Part: 3}, {From: 1, To: 1, Part: 3}},
		dtype.AllToAll:      {{From: 2, To: 1, Part: 3}, {From: 1, To: 2, Part: 3}},
		dtype.Broadcast:     {{Part: 3}, {Part: 3}},
		dtype.Reduce:        {{Part: 3}, {Part: 3}},
		dtype.AllReduce:     {{Part: 3}, {Part: 3}},
	} {
		s := plan.Spec{Coll: coll, Ranks: 3, Root: 2}
		for i, buf := range []plan.Buffer{plan.In, plan.Out} {
			c := chunk
			blocks := []int{coll.InBlocks(3, rank, 2), coll.OutBlocks(3, rank, 2)}[i]
			if blocks == 1 {
				c = chunk % split
			}
			if got := s.Extent(split, rank, buf, c); got != want[i] || !s.Has(split, got) {
				t.Errorf("%v, %v: %v, want %v", coll, buf, got, want[i])
			}
		}
	}
}
