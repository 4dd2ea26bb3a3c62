package network

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// TestImpossibleSizes checks that generators make nothing of impossible sizes, quickly, and that
// Validate reports it.
func TestImpossibleSizes(t *testing.T) {
	const huge = math.MaxInt
	for _, c := range []struct {
		topology *Topology
		words    string
	}{
		{Uniform(0, wire), "uniform-0: size [0], want 1 to 65536 ranks in all"},
		{Uniform(-3, wire), "size [-3], want 1"},
		{NVLink(huge, wire), "size [9223372036854775807], want 1"},
		{PCIe(MaxRanks+1, wire, wire), "size [65537], want 1"},
		{Ring(0, wire), "size [0], want 1"},
		{Torus([]int{-2, -2}, wire), "size [-2 -2], want 1"},
		{Torus([]int{1 << 12, 1 << 12}, wire), "size [4096 4096], want 1"},
		{FatTree(8, 0, 1, wire), "size 0, want 1"},
		{FatTree(8, 4, -1, wire), "size -1, want 1"},
		{FatTree(8, huge, huge, wire), "want 1 to 65536"},
		{Dragonfly(2, 0, 4, wire, wire), "size [2 0 4], want 1"},
		{Dragonfly(2, 30000, 1, wire, wire), "dragonfly-2-30000-1: it has more than 2097152 links"},
		{Rail(0, 8, wire, wire), "size [0 8], want 1"},
		{Rail(1, 1<<15, wire, wire), "more than 2097152 links"},
		{Uniform(2, Wire{math.NaN(), 1}), "startup NaN s, want 0 or more"},
		{Uniform(2, Wire{0, math.NaN()}), "the bandwidth must be more than 0 bytes a second, and finite, not NaN"},
		{Ring(2, Wire{math.Inf(1), 1}), "alpha must be 0 or more seconds, not +Inf"},
		{Ring(2, Wire{0, math.Inf(1)}), "finite, not +Inf"},
		{Ring(2, Wire{-1, 1}), "alpha must be 0 or more seconds, not -1"},
		{Ring(2, Wire{0, -1}), "not -1"},
		{Rail(1<<10, 2, wire, Wire{0, math.MaxFloat64}),
			"class 2: the bandwidth must be more than 0 bytes a second, and finite"},
	} {
		err := c.topology.Validate()
		require.ErrorContains(t, err, c.words)
		require.ErrorIs(t, err, fault.Invalid)
		_, err = NewRouter(c.topology)
		require.Error(t, err)
		require.Error(t, c.topology.WriteText(&strings.Builder{}))
	}
}

func TestHostileSpecs(t *testing.T) {
	for text, words := range map[string]string{
		"":                              `unknown kind ""; known: uniform`,
		"uniform:":                      `the size "" must be RANKS`,
		"uniform:-1":                    "size [-1], want 1 to 65536",
		"uniform:99999999999999999999":  "must be RANKS",
		"uniform:8x8":                   `the size "8x8" must be RANKS`,
		"rail:8":                        `the size "8" must be HOSTSxGPUS`,
		"rail:0x8":                      "size [0 8], want 1",
		"torus:2x2x2x2":                 "must be AxB or AxBxC",
		"uniform:8,bw=nan":              `bandwidth "nan"`,
		"uniform:8,bw=inf":              `bandwidth "inf"`,
		"uniform:8,bw=1e308TB":          `bandwidth "1e308TB"`,
		"uniform:8,bw=1e999":            `bandwidth "1e999"`,
		"uniform:8,alpha=inf":           `time "inf"`,
		"uniform:8,alpha=NaNs":          `time "NaNs"`,
		"uniform:8,":                    `"" is not one of alpha=VALUE`,
		"uniform:8,bw":                  `"bw" is not one of`,
		"uniform:8,=3":                  `"=3" is not one of`,
		"fattree:8,leaf=99999999999999": "fattree: leaf=99999999999999: want 1 to 65536",
		"fattree:8,over=1.5":            "over=1.5: want 1",
		"rail:2x2,socket_bw=1GB":        `"socket_bw=1GB" is not one of`,
		strings.Repeat("x", 1<<20):      "…",
	} {
		_, err := Parse(text, 8)
		require.ErrorContains(t, err, words)
		require.ErrorIs(t, err, fault.Invalid)
		require.Less(t, len(err.Error()), 1000)
	}
	for _, ranks := range []int{-1, 0, MaxRanks + 1, math.MaxInt} {
		_, err := Parse("ring", ranks)
		require.ErrorContains(t, err, fmt.Sprintf("ring: size [%d], want 1 to 65536 ranks in all", ranks))
	}
}

func TestHostileFiles(t *testing.T) {
	const head = "goccl topology format 1\nname x\nclass c alpha=1us bw=1GB\nrank a\nrank b\n"
	long := strings.Repeat("y", 1<<20)
	for _, c := range [][2]string{
		{head + "name z", `line 6, column 1: a second "name"; leave one`},
		{head + "startup 1us\nstartup 0", `line 7, column 1: a second "startup"`},
		{head + "routing first\nrouting ecmp", `line 7, column 1: a second "routing"`},
		{"goccl topology format 1\nname a*", `line 2, column 6: the name "a*" must be`},
		{"goccl topology format 1\nname " + long, "line 2, column 6: the name"},
		{head + long, `line 6, column 1: unknown word "yyy`},
		{head + "link " + long + " b c", `line 6, column 6: no node "yyy`},
		{head + "class " + long + " alpha=1 bw=1", `line 6, column 7: the name "yyy`},
		{head + "class d alpha=" + long + " bw=1", `line 6, column 9: time "yyy`},
		{head + "link" + strings.Repeat(" a", 1<<16), `line 6, column 12: want "link FROM TO CLASS"`},
		{head + "class d alpha=NaN bw=1GB", `line 6, column 9: time "NaN"`},
		{head + "class d alpha=-1us bw=1GB", `line 6, column 9: time "-1us"`},
		{head + "class d alpha=0 bw=Inf", `line 6, column 17: bandwidth "Inf"`},
		{head + "class d alpha=0 bw=0", `line 6, column 17: bandwidth "0"`},
		{head + "link a b c\n\nlink a b c",
			`line 8, column 1: link 1 is a second one from "a" to "b", which routing first never takes`},
		{head + "duplex a b c\nduplex b a c", `line 7, column 1: link 2 is a second one from "b" to "a"`},
		{"goccl topology format 1\nname x\nswitch s\n", "line 3, column 1: no node is a rank; add one"},
		{head + "switch a", `line 6, column 8: a second node "a"; names are unique`},
		{"\x00\xff", "line 1, column 1: want"},
		{`{"goccl_topology":1,"name":"x","name":"y"}`, `line 1, column 39: a second "name"`},
		{"{\"goccl_topology\":1,\n \"Links\":[],\"links\":[]}", `line 2, column 21: a second "links"`},
		{"{\"goccl_topology\":1,\n \"speed\":[1]}",
			`line 2, column 10: unknown field "speed"; known: goccl_topology, name`},
		{`{"goccl_topology":1,"classes":[` + strings.Repeat("{},", MaxClasses) + `{}]}`,
			`column 800: more than 256 elements in "classes"`},
		{`{"goccl_topology":1,"links":[` + strings.Repeat("0,", MaxLinks) + `0]}`,
			`more than 2097152 elements in "links"`},
		{`{"goccl_topology":1,"name":["x"]}`, `more than 0 elements in "name"`},
		{jsonFile(`{"name":"c","alpha":1e999,"bandwidth":1}`, ``), "line 2, column"},
		{jsonFile(`{"name":"c","alpha":-1,"bandwidth":1}`, ``),
			"line 2, column 13: class 0: alpha must be 0 or more seconds, not -1"},
		{jsonFile(`{"name":"c","alpha":0}`, ``), "line 2, column 13: class 0: the bandwidth must be more than 0"},
		{jsonFile(`{"name":"c","alpha":0,"bandwidth":1}`,
			`{"from":0,"to":1,"class":0},`+"\n"+`{"from":0,"to":7,"class":0}`),
			"line 5, column 1: link 1 leads from node 0 to 7, there are 2 nodes"},
		{jsonFile(`{"name":"c","alpha":0,"bandwidth":1}`, `{"from":0,"to":1,"class":-1}`),
			"line 4, column 11: link 0 is of class -1, there are 1"},
		{jsonFile(`{"name":"c","alpha":0,"bandwidth":1}`, `null`),
			`line 4, column 11: link 0 leads from node "a" to itself`},
		{jsonFile(`{"name":"c","alpha":0,"bandwidth":1}`, `{"from":0.5}`), "line 4, column"},
		{jsonFile(`{"name":"c","alpha":0,"bandwidth":1,"colour":1}`, ``), "unknown field"},
		{`{"goccl_topology":1,"name":"` + long, "unexpected EOF"},
		{`{"goccl_topology":1,"routing":"` + long + `"}`, "unknown routing"},
		{`{"goccl_topology":1,"links":` + strings.Repeat("[", 1<<16), "line 1, column"},
		{`{"\`, "line 1, column"},
		{`{`, "line 1, column"},
	} {
		_, err := Read(strings.NewReader(c[0]))
		require.ErrorContains(t, err, c[1])
		require.ErrorIs(t, err, fault.Invalid)
		require.Less(t, len(err.Error()), 1000)
	}
}

// jsonFile returns a file with two ranks; its classes are on line 2 and its links on line 4.
func jsonFile(classes, links string) string {
	return `{"goccl_topology":1,"name":"x","routing":"first",` + "\n" + ` "classes":[` + classes + "],\n" +
		` "nodes":[{"name":"a","rank":true},{"name":"b","rank":true}],` + "\n" + ` "links":[` + links + "]}"
}

// TestParallelLinks checks that two links between the same nodes are both used where a hash
// chooses.
func TestParallelLinks(t *testing.T) {
	const head = "goccl topology format 1\nname x\nrouting ecmp\nclass c alpha=0 bw=1GB\n" +
		"rank a\nrank b\nrank c\nrank d\nswitch s\nswitch z\n"
	topology, err := Read(strings.NewReader(head +
		"duplex a s c\nduplex b s c\nduplex c z c\nduplex d z c\nlink s z c\nlink s z c\nlink z s c\n"))
	require.NoError(t, err)
	r, err := NewRouter(topology)
	require.NoError(t, err)
	used := map[int32]bool{}
	for from := range 2 {
		for to := 2; to < 4; to++ {
			path, err := r.Route(nil, from, to)
			require.NoError(t, err)
			used[path[1]] = true
		}
	}
	require.Len(t, used, 2)
}
