package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// refusal matches every error about a file.
var refusal = regexp.MustCompile(`^goccl: invalid argument: plan:[1-9][0-9]*:[1-9][0-9]*: [^\n]{5,999}$`)

func TestMalformedText(t *testing.T) {
	const format = "goccl plan format 2\n"
	const head = format + "plan x all_reduce ranks=2 split=4 chans=2 flags=1 win=2 needs=messages+puts+gets\n"
	const lane = head + "rank 0\n tmp 0/0..3\n win 0/0..1\n lane 0\n"
	table := []struct{ text, want string }{
		{"\xef\xbb\xbf" + head, "1:1: it begins with a byte order mark"},
		{"\xff\xfeg\x00o\x00", "1:1: it begins with a byte order mark"},
		{"\x00", "1:1: this is no plan"},
		{"goccl plan format 2\rplan x all_reduce ranks=2\r", `1:20: found "\r", want the end of the line`},
		{"goccl plan format -2", "1:19: format -2, want 0 to"},
		{"goccl plan format 3\nplan of the future", "1:19: format 3, this version of goccl reads 2"},
		{format + "plan schön all_reduce", "2:6: the name must be letters"},
		{format + "plan " + strings.Repeat("n", 256) + " barrier ranks=1", "2:6: the name must be"},
		{format + "plan x barrier ranks=65537", "2:22: ranks 65537, want 1 to 65536"},
		{format + "plan x barrier ranks=-1", "2:22: ranks -1, want 1 to"},
		{format + "plan x barrier ranks=", "2:22: the line ends, want a number: ranks"},
		{format + "plan x barrier ranks=９", `2:22: found "\uff19", want a number`},
		{format + "plan x barrier ranks=0x8", "2:22: ranks 0, want 1"},
		{format + "plan x barrier ranks=1.5", `2:23: found ".", want one of ranks=`},
		{format + "plan x barrier ranks=2,", `2:23: found ",", want one of ranks=`},
		{format + "plan x barrier ranks=2 Split=2", `2:24: found "Split", want one of`},
		{format + "plan x barrier ranks=16 shape=2x2x2x2", "2:36: a shape has at most 3 levels"},
		{format + "plan x barrier ranks=16 shape=0x16", "2:31: shape 0, want 1"},
		{format + "plan x barrier ranks=65536 shape=65536x65536x65536", "2:1: shape 65536x65536x65536 has"},
		{format + "plan x broadcast ranks=2 root=-1", "2:31: root -1"},
		{format + "plan x barrier ranks=2 split=0", "2:30: split 0"},
		{format + "plan x barrier ranks=2 win=65537", "2:28: win 65537"},
		{format + "plan x barrier ranks=2 chans=-1", "2:30: chans -1"},
		{format + "plan x barrier ranks=2 needs=", "2:30: needs: want none, or some of"},
		{format + "plan x barrier ranks=2 needs=puts+", "2:35: needs: want none"},
		{format + "plan x barrier ranks=2 needs=none+puts", `2:34: found "+", want one of`},
		{format + "plan x barrier ranks=2 bytes=..5", `2:30: found ".", want a number: bytes`},
		{format + "plan x barrier ranks=2 bytes=0..9223372036854775808", "2:33: bytes: the number is too large"},
		{format + "plan x barrier ranks=2 bytes=5..0", "2:33: bytes 0, want 1"},
		{head + "rank -1", "3:6: rank -1, want 0 to 1"},
		{head + "rank 0 1", `3:8: found "1", want the end`},
		{head + "rank zero", `3:6: found "zero", want a number: rank`},
		{head + "ranks 0", `3:1: found "ranks", want rank, tmp, win or lane`},
		{head + "rank 0\n lane", "4:6: the line ends, want a number: lane"},
		{head + "rank 0\n lane 0\n lane 0", "5:2: lane 0, the next one is 1"},
		{head + "rank 0\n" + lanes(65), "68:6: lane 64, want 0 to 63"},
		{head + "rank 0\n tmp 0/-1", "4:8: part -1, want 0 to"},
		{head + "rank 0\n tmp 0/0..", "4:11: the line ends, want a number: part"},
		{head + "rank 0\n tmp 0/4", "4:2: rank 0: tmp[0] is as long as 0/4, which no rank has"},
		{head + "rank 0\n tmp 0>1/0", "tmp[0] is as long as 0>1/0, which no rank has"},
		{head + "rank 0\n tmp 0/0*0", "4:10: repetitions 0, want 1"},
		{head + "rank 0\n tmp 0/0..3*262144 0/0", "4:20: with these tmp has more than 1048576 chunks"},
		{head + "rank 0\n tmp 0..2147483647/0..2147483647*1048576", "4:6: with these tmp has more than 1048576"},
		{head + "rank 0\n tmp 0..2147483648/0", "4:9: block 2147483648, want 0 to 2147483647"},
		{head + "rank 0\n win 0/0*65537", "4:6: with these win has more than 65536 chunks"},
		{lane + "copy tmp[0]", `7:12: the line ends, want "="`},
		{lane + "copy tmp[0] == in[0]", `7:14: found "=", want in[I]`},
		{lane + "copy tmp[-1] = in[0]", "7:1: rank 0, lane 0, step 0 (copy tmp[-1] = in[0]): dst is chunks -1"},
		{lane + "copy tmp[0:3] = in[0:2]", "different numbers of chunks"},
		{lane + "copy tmp[0:0] = in[0:0]", "dst is empty"},
		{lane + "copy tmp[0] = in[1]", "may have different lengths"},
		{lane + "copy tmp[0:2] = tmp[1:3]", "tmp[0:2] overlaps tmp[1:3]"},
		{lane + "copy in[0] = tmp[0]", "it writes in, which belongs to the caller"},
		{lane + "copy tmp[1099511627777] = in[0]", "7:10: chunk 1099511627777, want -1099511627776"},
		{lane + "copy tmp[99999999999999999999] = in[0]", "7:10: chunk: the number is too large"},
		{lane + "reduce out[0] = in[0]", "1 sources, want two or more"},
		{lane + "reduce out[0] = in[0] +", `7:24: the line ends, want in[I]`},
		{lane + "send in[0] to -1", "peer -1 of 2 ranks"},
		{lane + "send in[0] to 1 chan -1", "7:22: channel -1, want 0"},
		{lane + "send in[0] to 1 final", "can be Final"},
		{lane + "send in[0] to 1 after", "7:22: the line ends, want a number: lane"},
		{lane + "send in[0] to 1 after 64.0", "7:23: lane 64, want 0 to 63"},
		{lane + "send in[0] to 1 after 0.0", "it comes after a step of its own lane"},
		{lane + "send in[0] to 1 after 1.0 x", `7:27: found "x", want the end`},
		{lane + "send in[0] too 1", `7:12: found "too", want "to"`},
		{lane + "send in[0]\x00 to 1", `7:11: found "\x00", want "to"`},
		{lane + "send in[0]\u00a0to 1", `7:11: found "\u00a0", want "to"`},
		{lane + "send in[0] to 1 in 0:1", `7:17: found "in", want the end`},
		{lane + "recv tmp[0] to 1", `7:13: found "to", want "from"`},
		{lane + "recvreduce out[0] = msg + msg from 1", `7:27: found "msg", want in[I]`},
		{lane + "put tmp[0]@1 = in[0]", "dst is in tmp of another rank; only win can be reached"},
		{lane + "get tmp[0] = win[0]@0", "the peer is this rank itself"},
		{lane + "wait 1 flag 1", "flag 1, the plan has 1"},
		{lane + "wait 1 chan 0", `7:8: found "chan", want the end`},
		{lane + "loop -1\n  wait 1", "7:6: times -1, want 1 to 1048576"},
		{lane + "loop 1048577\n  wait 1", "7:6: times 1048577"},
		{lane + "loop 3 after 1.0", `7:8: found "after", want the end`},
		{lane + " loop 3\n wait 1",
			"7:2: a loop without steps; its body is the lines that follow and are indented deeper"},
		{lane + " loop 3\n  loop 3\n   loop 3", "8:3: loops are not nested"},
		{lane + " loop 3\n  send in[0 by 1] to 1\n  send in[0 by 2] to 1",
			"9:3: rank 0, lane 0, step 5 (send in[4] to 1): source is chunks 4"},
		{lane + " loop 2\n  send in[0 by -9223372036854775807] to 1", "8:16: advance -9223372036854775807, want"},
		{lane + " loop 2\n  send in[0 by -9223372036854775808] to 1", "8:16: advance: the number is too large"},
		{lane + " loop 2\n  send in[0 by 1 in 5:4] to 1", "8:23: the range is empty"},
		{lane + " loop 2\n  send in[0 by 1099511627776] to 1", "it advances by what cannot be"},
		{lane + " loop 600000\n  wait 1\n loop 600000\n  wait 1",
			"9:2: rank 0, lane 0, step 600000 (loop 600000): more than 1048576 steps in all lanes"},
		{lane + " loop 1000000\n  reduce out[0 by 0 in 0:1] = in[0]" + strings.Repeat(" + in[0]", 200),
			"8:3: rank 0, lane 0, step 0 (reduce): too large to check"},
		{lane + " wait 1\n lane 1\n  loop 1000000\n   wait 1 by 1 in 1:2 after" + strings.Repeat(" 0.0", 200),
			"10:4: rank 0, lane 1, step 0 (wait): too large to check"},
		{head + "rank 0 # the other is missing", "3:30: rank 1 is missing"},
	}
	for _, test := range table {
		_, err := plan.Load([]byte(test.text))
		if !errors.Is(err, fault.Invalid) || !refusal.MatchString(err.Error()) ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%.150q: got %v, want %q", strings.TrimPrefix(test.text, lane), err, test.want)
		}
	}
}

func lanes(n int) string {
	var b strings.Builder
	for l := range n {
		fmt.Fprintln(&b, "lane", l)
	}
	return b.String()
}

func TestMalformedJSON(t *testing.T) {
	const head = `{"version":2,"name":"x","collective":"all_reduce","ranks":2,"split":4,"flags":1,"needs":["messages","puts"],` +
		`"programs":[{"rank":1},` + "\n"
	const lane = head + `{"rank":0,"lanes":[[` + "\n"
	table := []struct{ text, want string }{
		{"\xef\xbb\xbf{}", "1:1: it begins with a byte order mark"},
		{"{\"name\":\"\xc3\x28\"}", "1:10: it is not UTF-8"},
		{"{\"name\":\"a\x00b\"}", "1:11: name: a control character in a string"},
		{"{\"name\":\"a\nb\"}", "1:11: name: a control character"},
		{`{"name":"\x"}`, "1:9: name: a string with an escape that JSON does not have"},
		{`{"name":"\u12"}`, "1:9: name: a string with an escape"},
		{`{"name":"abc`, "1:13: the file ends in the middle"},
		{`{"name":"abc\"`, "1:15: the file ends in the middle"},
		{`{'name':"x"}`, "1:2: plan: want a string"},
		{`{name:"x"}`, "1:2: plan: want a string"},
		{`{"name" "x"}`, "1:9: plan: want ':'"},
		{`{"name":"x" "ranks":2}`, "1:13: plan: want ',' or '}'"},
		{`{"name":"x",}`, "1:13: plan: want a string"},
		{`{"name":"x"]`, "1:12: plan: want ',' or '}'"},
		{`{"name":null}`, "1:9: name: want a string"},
		{`{"Name":"x"}`, `1:2: plan: unknown field "Name"`},
		{`{"ranks":1e3}`, "1:10: ranks: want a whole number from 1 to 65536"},
		{`{"ranks":2.0}`, "1:10: ranks: want a whole number"},
		{`{"ranks":02}`, "1:10: ranks: want a whole number"},
		{`{"ranks":+2}`, "1:10: ranks: want a whole number"},
		{`{"ranks":-}`, "1:10: ranks: want a whole number"},
		{`{"ranks":"2"}`, "1:10: ranks: want a whole number"},
		{`{"ranks":99999999999999999999}`, "1:10: ranks: want a whole number"},
		{`{"ranks":-1}`, "1:10: ranks -1, want 1 to 65536"},
		{`{"ranks":`, "1:10: the file ends in the middle"},
		{`{"ranks":2`, "1:11: the file ends in the middle"},
		{`{"shape":[2,]}`, "1:13: shape: want a whole number"},
		{`{"shape":[2 2]}`, "1:13: shape: want ',' or ']'"},
		{`{"shape":{}}`, "1:10: shape: want '['"},
		{`{"needs":"puts"}`, "1:10: needs: want '['"},
		{`{"max_bytes":-1}`, "1:14: max_bytes -1"},
		{`{"version":2,"ranks":2,"name":"a b","collective":"barrier","programs":[]}`, "1:1: the name must be"},
		{strings.Repeat(`{"programs":[`, 9999), `1:13: "version" is missing`},
		{head + strings.Repeat("[", 99999), "2:1: program: want '{'"},
		{head + `{"rank":0,"lanes":{}}]}`, "2:19: lanes: want '['"},
		{head + `{"rank":0,"lanes":[` + strings.Repeat("[],", 64) + `[]]}]}`, "2:212: a rank has at most 64 lanes"},
		{head + `{"rank":0,"tmp":[{"block":[0,0],"from":[0,0],"to":[0,0],"part":[0,0]}]}]}`,
			`2:18: lengths: want "part", and "block" or`},
		{head + `{"rank":0,"tmp":[{"block":[0,0],"part":[0,3],"times":262144},{"block":[0,0],"part":[0,0]}]}]}`,
			"2:62: with these tmp has more than"},
		{head + `{"rank":2}]}`, "2:9: rank 2, want 0 to 1"},
		{head + `{"rank":0},]}`, "2:12: program: want '{'"},
		{head + `{"rank":0}]}{`, "2:13: something follows the plan"},
		{lane + `{"kind":"wait","peer":1,"peer":1}]]}]}`, `3:25: step: "peer" is given twice`},
		{lane + `{"kind":"wait","peer":1,"times":2}]]}]}`, "3:1: rank 0, lane 0, step 0 (wait 1): it is no loop"},
		{lane + `{"kind":"wait","peer":1,"from":[1]}]]}]}`, "only the sources of getreduce have ranks"},
		{lane + `{"kind":"wait","peer":1,"dst":{"buf":"out"}}]]}]}`, "it writes nothing"},
		{lane + `{"kind":"loop","times":2}]]}]}`, "3:1: a loop without steps"},
		{lane + `{"kind":"loop","body":[{"kind":"wait","peer":1}]}]]}]}`,
			"3:1: rank 0, lane 0, step 0 (loop 0): 0 times"},
		{lane + `{"kind":"loop","times":2,"after":[[1,0]],"body":[{"kind":"wait","peer":1}]}]]}]}`,
			"a loop comes after nothing itself"},
		{lane + `{"kind":"loop","times":2,"body":[{"kind":"wait","peer":1,"by":{"src":[{"by":1}]}}]}]]}]}`,
			"By has not as many sources"},
		{lane + `{"kind":"loop","times":2,"body":[{"kind":"wait","peer":1,"by":{"peer":{"low":1}}}]}]]}]}`,
			"it advances by what cannot be"},
		{lane + `{"kind":"send","src":[{"buf":"in","n":-1}],"peer":1}]]}]}`, "3:39: n -1, want 0"},
		{lane + `{"kind":"send","src":[{"buf":"in","at":1099511627776,"n":1099511627776}],"peer":1}]]}]}`,
			"source is chunks"},
	}
	for _, test := range table {
		_, err := plan.Load([]byte(test.text))
		if !errors.Is(err, fault.Invalid) || !refusal.MatchString(err.Error()) ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%.150q: got %v, want %q", strings.TrimPrefix(test.text, head), err, test.want)
		}
	}
	for _, end := range []string{"", "tru", "falsey", "0", "nul"} {
		if _, err := plan.ParseJSON([]byte(lane + `{"final":` + end)); err == nil || !refusal.MatchString(err.Error()) {
			t.Errorf("final %q: got %v", end, err)
		}
	}
}

// TestDamaged checks that a plan that is truncated, or has one wrong byte, is either refused with a
// position or still valid.
func TestDamaged(t *testing.T) {
	files, err := filepath.Glob("testdata/*_*.txt")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := plan.Parse(text); err == nil {
			data, err := p.JSON()
			if err != nil {
				t.Fatal(err)
			}
			damage(t, data, true)
		}
		damage(t, text, false)
	}
}

func damage(t *testing.T, data []byte, isJSON bool) {
	t.Helper()
	check := func(what string, at int, damaged []byte) {
		p, err := plan.Load(damaged)
		switch {
		case err != nil && !refusal.MatchString(err.Error()):
			t.Fatalf("%s at byte %d: %v", what, at, err)
		case err == nil && isJSON && !json.Valid(damaged):
			t.Fatalf("%s at byte %d: this is no JSON", what, at)
		case err == nil && p.Validate(0) != nil:
			t.Fatalf("%s at byte %d: %v", what, at, p.Validate(0))
		}
	}
	step := max(1, len(data)/300)
	for at := 0; at < len(data); at += step {
		check("end", at, data[:at])
		for _, c := range []byte("\x00\n9-x\"") {
			damaged := bytes.Clone(data)
			damaged[at] = c
			check(string(c), at, damaged)
		}
	}
}

// TestHostileSizes: the time and memory that a file takes are in proportion to its size, and what
// it may ask for beyond that is bounded. The time limit is far above the time needed; work that
// grows with the square of the file size would take hours.
func TestHostileSizes(t *testing.T) {
	const text = "goccl plan format 2\nplan x all_reduce ranks=2 chans=2 flags=1 win=2 needs=messages+puts+gets\n"
	const object = `{"version":2,"name":"x","collective":"all_reduce","ranks":2,"flags":1,"needs":["messages","puts"],"programs":[{"rank":0,`
	for _, test := range []struct{ begin, unit, want string }{
		{"", "\n", "it is empty"},
		{"", "#", "it is empty"},
		{text + "rank 0\n win", " 0/0", "with these win"},
		{text + "rank 0\n lane 0\n", "wait 1\n", "1 is missing"},
		{text + "rank 0\n lane 0\n loop 1\n", "  wait 1\n", "1 is missing"},
		{text + "rank 0\n lane 0\n reduce out[0] = in[0]", "+in[0]", "1 is missing"},
		{text + "rank 0\n lane 0\n wait 1\n lane 1\n wait 1 after", " 0.0", "the file lists more than"},
		{text + "rank 0\n lane 0\n wait 1\n lane 1\n loop 1000000\n  wait 1 by 1 in 1:2 after", " 0.0",
			"the file lists more than"},
		{text + "rank 0\n lane 0\n loop 1000000\n  reduce out[0] = out[0 by 1 in 0:1]", "+out[0]",
			"too large to check"},
		{"{", " ", "ends in the middle"},
		{`{"programs":`, "[", `"version" is missing`},
		{`{"name":"`, `\u0061`, "ends in the middle"},
		{object + `"lanes":[[{"kind":"wait","peer":1}`, `,{"kind":"wait","peer":1}`, "ends in the middle"},
		{object + `"lanes":[[{"kind":"loop","body":[{"kind":"wait"}`, `,{"kind":"wait"}`, "ends in the middle"},
		{object + `"lanes":[[{"kind":"wait","after":[[0,0]`, ",[0,0]", "ends in the middle"},
		{object + `"lanes":[[{"kind":"wait","by":{"src":[{}`, ",{}", "the file lists more than"},
	} {
		data := []byte(test.begin + strings.Repeat(test.unit, (1<<20)/len(test.unit)))
		start := time.Now()
		_, err := plan.Load(data)
		if err == nil || !refusal.MatchString(err.Error()) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q…: got %v, want %q", test.begin+test.unit, err, test.want)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%q…: %v", test.begin+test.unit, took)
		}
	}
}
