package flight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const records = "testdata/records"

func TestUnpickle(t *testing.T) {
	for text, want := range map[string]any{
		"N.": nil, "\x88.": true, "\x89.": false, "J\xfe\xff\xff\xff.": int64(-2), "K\xff.": int64(255),
		"M\x01\x02.": int64(513), "\x8a\x00.": int64(0), "\x8a\x01\xff.": int64(-1), "\x8a\x02\x00\x80.": int64(-32768),
		"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.": int64(-1 << 63), "G\x3f\xf8\x00\x00\x00\x00\x00\x00.": 1.5,
		"X\x02\x00\x00\x00ab.": "ab", "\x8c\x01a.": "a", "\x8d\x01\x00\x00\x00\x00\x00\x00\x00a.": "a",
		"](e.": &list{}, "].": &list{}, ").": &list{[]any(nil)},
		"}(X\x01\x00\x00\x00aNu.": dict{"a": nil}, "}X\x01\x00\x00\x00aK\x01s.": dict{"a": int64(1)},
		"}K\x07Ns.": dict{"7": nil}, "K\x01\x85.": &list{[]any{int64(1)}}, "NN\x86.": &list{[]any{nil, nil}},
		"(NNNNt.": &list{[]any{nil, nil, nil, nil}}, "]q\x00K\x05a.": &list{[]any{int64(5)}},
		"K\x05r\x01\x00\x00\x00j\x01\x00\x00\x00\x86.":   &list{[]any{int64(5), int64(5)}},
		"K\x05\x94h\x00\x86.":                            &list{[]any{int64(5), int64(5)}},
		"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N.": nil,
	} {
		got, err := unpickle(text)
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, got, "%q", text)
	}
}

func TestRefusedPickles(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "byte 0: the file ends within the value",
		"N":                                      "byte 1: the file ends within the value",
		".":                                      "byte 0: a value is missing",
		"NN.":                                    "byte 2: values are left over",
		"cos\nsystem\n":                          "byte 0: opcode 0x63 is none of those that a record consists of",
		"N\x8cN.":                                "byte 1: the file ends within the value",
		"\x80\x01N.":                             "byte 0: a pickle of protocol 1; want 2 to 5",
		"\x8a\x09123456789.":                     "byte 0: a number of 9 bytes; want 8 at most",
		"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.": "byte 0: the file ends within the value",
		"Ne.":                                    "byte 1: there is no mark",
		"Na.":                                    "byte 1: a value is missing",
		"NNa.":                                   "byte 2: an item for what is no list",
		"N(NNu.":                                 "byte 4: an entry for what is no dict",
		"}(Nu.":                                  "byte 3: a key without a value",
		"}NNs.":                                  "byte 3: a key that is neither text nor number",
		"h\x00.":                                 "byte 0: value 0, which is not there",
		"(.":                                     "byte 1: a mark where a value is due",
		"](e(t":                                  "byte 5: the file ends within the value",
	} {
		_, err := unpickle(text)
		require.EqualError(t, err, want, "%q", text)
	}
}

// A pickle that names one list many times takes neither memory nor time.
func TestManyNames(t *testing.T) {
	long := "](" + strings.Repeat("K\x01", 1<<16) + "eq\x00"
	sizes := "](" + strings.Repeat("h\x00", 1<<16) + "e"
	text := "}(\x8c\x07entries](}(\x8c\x0dprocess_group\x8c\x010\x85" + "\x8c\x06frames" + long + "\x8c\x0binput_sizes" + sizes + "ueu."
	_, err := Parse(text)
	require.EqualError(t, err, "entry 0: its lists are too long")
}

func TestReadFiles(t *testing.T) {
	files, err := Find(records, "trace_")
	require.NoError(t, err)
	require.Len(t, files, 3)
	_, err = Find(records, "")
	require.ErrorContains(t, err, "has files with several names: torch_RANK, trace_RANK; choose with --prefix")
	_, err = Find(records, "no_")
	require.ErrorContains(t, err, "has no records: no file is named no_RANK")
	var all []*Record
	for rank, path := range files {
		r, err := ReadFile(path)
		require.NoError(t, err, path)
		require.Equal(t, rank, r.Rank)
		require.Equal(t, time.Unix(1_700_000_100, 0), r.Written)
		all = append(all, r)
	}
	report := Compare(all, nil)
	require.True(t, report.Different)
	require.Equal(t, []int{1}, report.Groups[0].Guilty)
	require.Equal(t, "rank 1 has not called seq 2 (all_reduce of 1024 x f32 (sum)), which rank 2 is in for 30.0 s and "+
		"which has failed on rank 0; rank 1 is in no call for 40.0 s", report.Conclusion)

	torch, err := ReadFile(filepath.Join(records, "torch_0"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), torch.Written, 100*365*24*time.Hour, "that of the file")
	g := groupsOf([]*Record{torch})[0]
	require.Equal(t, []int{0, 1}, g.ranks)
	require.Equal(t, "seq 7, all_gather_into_tensor_coalesced of 22 x f32", torch.entries[0].title(g))
	require.Equal(t, "send of 8589934592 x bf16 to rank 1", torch.entries[1].title(g))
	require.Equal(t, ended, torch.entries[1].state)

	_, err = ReadFile("doc.go")
	require.ErrorContains(t, err, "doc.go: the name of a record ends with the number of its rank")
	wrong := filepath.Join(t.TempDir(), "trace_5")
	require.NoError(t, os.WriteFile(wrong, []byte("\x80\x02}q\x00."), 0o644))
	_, err = ReadFile(wrong)
	require.ErrorContains(t, err, wrong+" is not a record: it has no list of entries")
	require.NoError(t, os.WriteFile(wrong, []byte("\x80\x02cposix\nsystem\n."), 0o644))
	_, err = ReadFile(wrong)
	require.ErrorContains(t, err, wrong+" is not a record: byte 2: opcode 0x63")
	_, err = ReadFile(t.TempDir() + "1")
	require.Error(t, err)
}

// FuzzParse gives the reader anything: it refuses it or compares it.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(records + "/*")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds: ", err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		r, err := Parse(text)
		if err != nil {
			return
		}
		other := *r
		other.Rank = 1
		var out strings.Builder
		if err := Compare([]*Record{r, &other}, nil).Print(&out); err != nil {
			t.Fatal(err)
		}
		for _, c := range out.String() {
			if c < ' ' && c != '\n' {
				t.Fatalf("%q for the terminal", out.String())
			}
		}
	})
}
