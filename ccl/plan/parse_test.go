package plan_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// friendly is a plan as a person might write it.
const friendly = `# swap, then add

goccl plan format 2
plan my-own all_reduce ranks=2 needs=messages   # the rest is left out
rank 1
	lane 0
		send in[0] to 0
		recvreduce out[0]=msg+in[0] from 0 final
rank 0
lane 0
send in[0:1] to 1
recvreduce out[0] = in[0] + msg from 1 final # in rank order
`

func TestParse(t *testing.T) {
	p, err := plan.Parse([]byte(strings.ReplaceAll(friendly, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := `goccl plan format 2
plan my-own all_reduce ranks=2 split=1 chans=1 flags=0 win=0 needs=messages alias=none
rank 0
  lane 0
    0 send in[0] to 1
    1 recvreduce out[0] = in[0] + msg from 1 final
rank 1
  lane 0
    0 send in[0] to 0
    1 recvreduce out[0] = msg + in[0] from 0 final
`
	if got := p.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if prog := p.Program(7); len(prog.Lanes) != 0 {
		t.Error("a rank that is not there has a program")
	}
}

// TestParseKeepsLoops: a few bytes may stand for many steps and chunks; loops stay loops in memory.
func TestParseKeepsLoops(t *testing.T) {
	text := "goccl plan format 2\nplan loops all_to_all ranks=2 needs=puts flags=1\n" +
		"rank 0\n tmp 0>0..1/0*50000 1/0*2\n lane 0\n  loop 50000\n   signal 1\n   wait 1\n  signal 1\nrank 1\n"
	if _, err := plan.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "counts") {
		t.Fatalf("got %v", err)
	}
	text = strings.Replace(text, "1/0*2", "", 1)
	p, err := plan.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	prog := p.Program(0)
	if len(prog.Lanes[0]) != 2 || plan.Len(prog.Lanes[0]) != 100001 || len(prog.Tmp) != 100000 {
		t.Errorf("%d items, %d steps, %d chunks of tmp", len(prog.Lanes[0]), plan.Len(prog.Lanes[0]), len(prog.Tmp))
	}
}

func TestParseErrors(t *testing.T) {
	const head = "goccl plan format 2\nplan x all_reduce ranks=2 chans=2 flags=1 win=2 needs=messages+puts+gets\n"
	table := []struct{ text, want string }{
		{"", "plan:1:1: it is empty"},
		{"# only this", "plan:1:1: it is empty"},
		{"hello", "plan:1:1: this is no plan"},
		{"\n goccl plan format 1", "plan:2:20: format 1, this version of goccl reads 2"},
		{"goccl plan format x", "plan:1:19: found \"x\", want a number: format"},
		{"goccl plan format 2 3", "plan:1:21: found \"3\", want the end of the line"},
		{"goccl plan format 99999999999999999999", "plan:1:19: format: the number is too large"},
		{"goccl plan format 2\n", "plan:2:1: the line \"plan NAME"},
		{"goccl plan format 2\nrank 0", "plan:2:1: found \"rank\", want \"plan\""},
		{"goccl plan format 2\nplan a,b", "plan:2:6: the name must be"},
		{"goccl plan format 2\nplan", "plan:2:5: the name must be"},
		{"goccl plan format 2\nplan x collect", "plan:2:8: want a collective; known: [broadcast"},
		{"goccl plan format 2\nplan x send ranks=2", "plan:2:1: send has no plans"},
		{"goccl plan format 2\nplan x reduce", "plan:2:14: ranks= is missing"},
		{"goccl plan format 2\nplan x reduce ranks=0", "plan:2:21: ranks 0, want 1 to 65536"},
		{"goccl plan format 2\nplan x reduce ranks 2", "plan:2:21: found \"2\", want \"=\""},
		{"goccl plan format 2\nplan x reduce ranks=2 ranks=2", "plan:2:23: ranks= is given twice"},
		{"goccl plan format 2\nplan x reduce ranks=2 color=2", "plan:2:23: found \"color\", want one of ranks="},
		{"goccl plan format 2\nplan x reduce ranks=2 root=2", "plan:2:1: root 2 of 2 ranks"},
		{"goccl plan format 2\nplan x barrier ranks=2 root=1", "plan:2:1: root 1 of a collective without a root"},
		{"goccl plan format 2\nplan x reduce ranks=8 shape=2x3", "plan:2:1: shape 2x3 has 6 ranks"},
		{"goccl plan format 2\nplan x reduce ranks=8 shape=2x", "plan:2:31: the line ends, want a number: shape"},
		{"goccl plan format 2\nplan x reduce ranks=8 split=131073", "plan:2:29: split 131073"},
		{"goccl plan format 2\nplan x reduce ranks=8 chans=5", "plan:2:29: chans 5"},
		{"goccl plan format 2\nplan x reduce ranks=8 flags=17", "plan:2:29: flags 17"},
		{"goccl plan format 2\nplan x reduce ranks=8 win=-1", "plan:2:27: win -1"},
		{"goccl plan format 2\nplan x reduce ranks=8 needs=puts+love",
			"plan:2:34: needs: want none, or some of [messages"},
		{"goccl plan format 2\nplan x reduce ranks=8 needs=puts+puts", "plan:2:34: needs:"},
		{"goccl plan format 2\nplan x reduce ranks=8 alias=me", "plan:2:29: alias: want none"},
		{"goccl plan format 2\nplan x reduce ranks=8 bytes=5", "plan:2:30: the line ends, want \"..\""},
		{"goccl plan format 2\nplan x reduce ranks=8 bytes=5..4", "plan:2:1: it is meant for calls of 5 to 4 bytes"},
		{"goccl plan format 2\nplan x reduce ranks=1 bytes=5..\n", "plan:3:1: rank 0 is missing"},
		{head + "rank 0\n", "plan:4:1: rank 1 is missing"},
		{head + "rank 2", "plan:3:6: rank 2, want 0 to 1"},
		{head + "rank 0\nrank 1\nrank 0", "plan:5:1: rank 0 is listed twice"},
		{head + "lane 0", "plan:3:1: a lane must come after its rank"},
		{head + "tmp 0/0", "plan:3:1: tmp must come before the lanes"},
		{head + "rank 0\nlane 0\ntmp 0/0", "plan:5:1: tmp must come before the lanes"},
		{head + "rank 0\ntmp 0/0\ntmp 0/0", "plan:5:1: tmp is given twice"},
		{head + "rank 0\ntmp", "plan:4:4: the line ends, want a number: block"},
		{head + "rank 0\ntmp 0", "plan:4:6: the line ends, want \"/\""},
		{head + "rank 0\ntmp 0/0*1048577", "plan:4:9: repetitions 1048577"},
		{head + "rank 0\ntmp 0/0..2000000", "plan:4:5: with these tmp has more than 1048576 chunks"},
		{head + "rank 0\ntmp 0/0*1000000 0/0*1000000", "plan:4:17: with these tmp has more than 1048576 chunks"},
		{head + "rank 0\n win 0/0*3", "plan:4:2: rank 0: 3 chunks of win, the plan says"},
		{head + "rank 0\n tmp 1/0", "plan:4:2: rank 0: tmp[0] is as long as 1/0, which no rank has"},
		{head + "rank 0\nlane 1", "plan:4:1: lane 1, the next one is 0"},
		{head + "rank 0\nlane 64", "plan:4:6: lane 64, want 0 to 63"},
		{head + "rank 0\nsend in[0] to 1", "plan:4:1: found \"send\", want rank, tmp, win or lane"},
		{head + "rank 0\nlane 0\n 1 send in[0] to 1", "plan:5:2: step 1, the next one is 0"},
		{head + "rank 0\nlane 0\n throw in[0] to 1", "plan:5:2: found \"throw\", want a step: [copy reduce"},
		{head + "rank 0\nlane 0\n send in[0] 1", "plan:5:13: found \"1\", want \"to\""},
		{head + "rank 0\nlane 0\n send in[0 to 1", "plan:5:12: found \"to\", want \"]\""},
		{head + "rank 0\nlane 0\n send in to 1", "plan:5:10: found \"to\", want \"[\""},
		{head + "rank 0\nlane 0\n send at[0] to 1", "plan:5:7: found \"at\", want in[I], out[I]"},
		{head + "rank 0\nlane 0\n send in[3:2] to 1", "plan:5:12: chunks 3 to 2"},
		{head + "rank 0\nlane 0\n send in[0:\x80\x01] to 1", "plan:5:12: found \"\\x80\", want a number: chunk"},
		{head + "rank 0\nlane 0\n send in[1] to 1",
			"plan:5:2: rank 0, lane 0, step 0 (send in[1] to 1): source is chunks 1 to 1+1"},
		{head + "rank 0\nlane 0\n send in[0] to 0",
			"plan:5:2: rank 0, lane 0, step 0 (send in[0] to 0): a rank sends no messages to itself"},
		{head + "rank 0\nlane 0\n send in[0] to 1 chan 2",
			"plan:5:2: rank 0, lane 0, step 0 (send in[0] to 1 chan 2): channel 2"},
		{head + "rank 0\nlane 0\n send in[0] to 1 flag 0", "plan:5:18: found \"flag\", want the end of the line"},
		{head + "rank 0\nlane 0\n send in[0] to 1 after 0", "plan:5:25: the line ends, want \".\""},
		{head + "rank 0\nlane 0\n send in[0] to 1 after 1.0",
			"plan:5:2: rank 0, lane 0, step 0 (send in[0] to 1 after 1.0): it comes after lane 1"},
		{head + "rank 0\nlane 0\n send in[0 by 1] to 1",
			"plan:5:2: rank 0, lane 0, step 0 (send in[0 by 1] to 1): only steps of a loop advance"},
		{head + "rank 0\nlane 0\n send in[0 by 1 in 3:3] to 1", "plan:5:22: the range is empty"},
		{head + "rank 0\nlane 0\n recvreduce out[0] = msg in[0]", "plan:5:26: found \"in\", want \"+\""},
		{head + "rank 0\nlane 0\n recvreduce out[0] = in[0] + in[0]", "plan:5:30: found \"in\", want \"msg\""},
		{head + "rank 0\nlane 0\n getreduce out[0] = in[0] + win[0]", "plan:5:35: sources in win, and only they"},
		{head + "rank 0\nlane 0\n getreduce out[0] = in[0]@1 + win[0]@1", "plan:5:26: sources in win, and only they"},
		{head + "rank 0\nlane 0\n put win[2]@1 = in[0]", "dst is chunks 2 to 2+1 of win, which has 2"},
		{head + "rank 0\nlane 0\n loop 0", "plan:5:7: times 0, want 1 to 1048576"},
		{head + "rank 0\nlane 0\n loop 3\n wait 1", "plan:5:2: a loop without steps; its body is the lines"},
		{head + "rank 0\nlane 0\n loop 3\n  loop 2\n", "plan:6:3: loops are not nested"},
		{head + "rank 0\nlane 0\n loop 3\n  wait 1\n  4 wait 1", "plan:7:3: step 4, the next one is 1"},
		{head + "rank 0\nlane 0\n loop 3\n  wait 1\n 4 wait 1", "plan:7:2: step 4, the next one is 3"},
		{head + "rank 0\nlane 0\n loop 3\n  wait 1\n  wait 1 by 1",
			"plan:7:3: rank 0, lane 0, step 3 (wait 2): peer 2 of 2"},
		{head + "rank 0\nlane 0\n wait 1\n loop 9\n  wait 1\n  wait 1 by 5000000000",
			"plan:8:3: rank 0, lane 0, step 2 (wait 1 by 5000000000): it advances by what cannot be"},
		{head + "rank 0\nlane 0\n loop 1000000\n  wait 1\n  wait 1",
			"plan:5:2: rank 0, lane 0, step 0 (loop 1000000): 1000000 times 2 steps"},
	}
	for _, test := range table {
		_, err := plan.Parse([]byte(test.text))
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %q", strings.TrimPrefix(test.text, head), err, test.want)
		}
	}
	for _, read := range []func([]byte) (*plan.Plan, error){plan.Parse, plan.ParseJSON, plan.Load} {
		if _, err := read(make([]byte, plan.MaxFileSize+1)); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("a huge file: got %v", err)
		}
	}
}

// TestParseBudget: a file may not contain more steps than can be checked.
func TestParseBudget(t *testing.T) {
	var b strings.Builder
	b.WriteString("goccl plan format 2\nplan x barrier ranks=200 needs=puts flags=1\n")
	for r := range 200 {
		b.WriteString("rank " + strconv.Itoa(r) +
			"\nlane 0\nloop 1048576\n signal " + map[bool]string{true: "0", false: "1"}[r != 0] + "\n")
	}
	if _, err := plan.Parse([]byte(b.String())); err == nil ||
		!strings.Contains(err.Error(), "plan:67:1: with rank 16 the plan has more than 16777216 steps") {
		t.Errorf("got %v", err)
	}
}

func TestParseJSONErrors(t *testing.T) {
	const head = `{"format":"goccl plan","version":2,"name":"x","collective":"all_reduce","ranks":2,"chans":2,"flags":1,"win":2,
"needs":["messages","puts","gets"],"programs":[{"rank":1},
`
	const lane = head + `{"rank":0,"lanes":[[
`
	table := []struct{ text, want string }{
		{"{", "plan:1:2: the file ends in the middle"},
		{"", "plan:1:1: the file ends in the middle"},
		{"[]", "plan:1:1: plan: want '{'"},
		{"\xff", "plan:1:1: it is not UTF-8"},
		{"{}", "plan:1:3: \"programs\" is missing"},
		{`{"format":"x"}`, `plan:1:11: format "x"`},
		{`{"version":1}`, "plan:1:12: version 1, this version of goccl reads 2"},
		{`{"version":"2"}`, "plan:1:12: version: want a whole number"},
		{`{"version":2.5}`, "plan:1:12: version: want a whole number"},
		{`{"name":5}`, "plan:1:9: name: want a string"},
		{"{\n \"color\":5}", `plan:2:2: plan: unknown field "color"`},
		{`{"ranks":2,"ranks":2}`, `plan:1:12: plan: "ranks" is given twice`},
		{`{"ranks":65537}`, "plan:1:10: ranks 65537"},
		{`{"collective":"love"}`, "plan:1:15: want a collective"},
		{`{"shape":[1,1,1,1]}`, "plan:1:10: a shape has at most 3 levels"},
		{`{"needs":["love"]}`, "plan:1:11: needs: want some of"},
		{`{"alias":["in_place","in_place"]}`, "plan:1:22: alias: want some of"},
		{`{"programs":[]}`, `plan:1:13: "version" is missing`},
		{`{"version":2,"programs":[]}`, `plan:1:25: "ranks" is missing`},
		{`{"version":2,"ranks":2,"programs":[]}`, "has no plans"},
		{`{"version":2,"name":"x","collective":"barrier","ranks":1,"programs":[]}` + "\n",
			"plan:2:1: rank 0 is missing"},
		{head + `{"rank":0}],"split":1}`, `plan:3:21: "programs" must be the last field`},
		{head + `{"rank":0}]} 5`, `plan:3:14: something follows the plan`},
		{head + `{"rank":0}]`, `plan:3:12: the file ends in the middle`},
		{head + `{"rank":0,}]}`, "plan:3:"},
		{head + `{"rank":1}]}`, "plan:3:9: rank 1 is listed twice"},
		{head + `{}]}`, `plan:3:1: program: "rank" must be its first field`},
		{head + `{"tmp":[]}]}`, `plan:3:1: program: "rank" must be its first field`},
		{head + `{"rank":0,"max":[]}]}`, `plan:3:11: program: unknown field "max"`},
		{head + `{"rank":0,"tmp":[{}]}]}`, `plan:3:18: lengths: want "part"`},
		{head + `{"rank":0,"tmp":[{"block":[0,0],"part":[0]}]}]}`, `plan:3:40: part: want two numbers`},
		{head + `{"rank":0,"tmp":[{"block":[0,0],"part":[0,0,0]}]}]}`, `plan:3:40: part: want two numbers`},
		{head + `{"rank":0,"tmp":[{"block":[0,0],"part":[0,2000000]}]}]}`, `plan:3:18: with these tmp has more than`},
		{head + `{"rank":0,"tmp":[{"block":[0,0],"part":[0,1]}]}]}`, `plan:3:17: rank 0: tmp[1] is as long as`},
		{head + `{"rank":0,"tmp":[{"long":1}]}]}`, `plan:3:19: lengths: unknown field "long"`},
		{head + `{"rank":0,"win":[{"from":[0,0],"to":[0,0],"part":[0,0],"times":3}]}]}`,
			`plan:3:17: rank 0: 3 chunks of win`},
		{lane + `{}]]}]}`, `plan:4:1: step: "kind" is missing`},
		{lane + `{"kind":"throw"}]]}]}`, `plan:4:9: kind: want one of [copy`},
		{lane + `{"kind":"loop","love":1}]]}]}`, `plan:4:16: step: unknown field "love"`},
		{lane + `{"kind":"copy","final":1}]]}]}`, `plan:4:24: final: want true or false`},
		{lane + `{"kind":"copy","dst":{}}]]}]}`, `plan:4:22: dst: "buf" is missing`},
		{lane + `{"kind":"copy","dst":{"buf":"x"}}]]}]}`, `plan:4:29: buf: want in, out, tmp or win`},
		{lane + `{"kind":"copy","dst":{"len":"x"}}]]}]}`, `plan:4:23: dst: unknown field "len"`},
		{lane + `{"kind":"copy","after":[[1]]}]]}]}`, `plan:4:25: after: want [LANE, STEP]`},
		{lane + `{"kind":"copy","after":[[1,2,3]]}]]}]}`, `plan:4:25: after: want [LANE, STEP]`},
		{lane + `{"kind":"copy","by":{"x":1}}]]}]}`, `plan:4:22: by: unknown field "x"`},
		{lane + `{"kind":"copy","by":{"peer":{"x":1}}}]]}]}`, `plan:4:30: advance: unknown field "x"`},
		{lane + `{"kind":"copy","dst":{"buf":"out","at":0},"src":[]}]]}]}`,
			`plan:4:1: rank 0, lane 0, step 0 (copy): 0 sources`},
		{lane + `{"kind":"loop","times":2,"body":[
{"kind":"wait","peer":1},
 {"kind":"wait","peer":2}]}]]}]}`, `plan:6:2: rank 0, lane 0, step 1 (wait 2): peer 2 of 2`},
		{lane + `{"kind":"loop","times":2,"body":[
{"kind":"loop","body":[]}]}]]}]}`, `plan:5:1: loops are not nested`},
		{lane + `{"kind":"loop","times":2,"body":[
{"kind":"loop"}]}]]}]}`, `plan:5:1: loops are not nested`},
	}
	for _, test := range table {
		_, err := plan.ParseJSON([]byte(test.text))
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %q", strings.TrimPrefix(test.text, head), err, test.want)
		}
	}
	broken := everyForm()
	broken.Spec.Coll = dtype.Broadcast
	if _, err := broken.JSON(); !errors.Is(err, fault.Invalid) {
		t.Errorf("JSON of a broken plan: %v", err)
	}
	broken.Split = 0
	if _, err := broken.JSON(); !errors.Is(err, fault.Invalid) {
		t.Errorf("JSON of a plan with a broken head: %v", err)
	}
}
