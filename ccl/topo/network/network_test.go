package network

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

var wire = Wire{Alpha: 1e-6, Bandwidth: 25e9}

// diameter returns the most links between two ranks.
func diameter(t *testing.T, topology *Topology) int {
	t.Helper()
	r, err := NewRouter(topology)
	require.NoError(t, err)
	longest := 0
	for a := range r.Ranks() {
		for b := range r.Ranks() {
			path, err := r.Route(nil, a, b)
			require.NoError(t, err)
			at := r.ranks[a]
			for _, l := range path { // the links form a path
				require.EqualValues(t, at, topology.Links[l].From)
				at = int32(topology.Links[l].To)
			}
			require.Equal(t, r.ranks[b], at)
			longest = max(longest, len(path))
		}
	}
	return longest
}

// degree returns the number of links out of each node whose name begins with prefix; all of these
// must have the same number.
func degree(t *testing.T, topology *Topology, prefix string) int {
	t.Helper()
	out := make([]int, len(topology.Nodes))
	for _, l := range topology.Links {
		out[l.From]++
	}
	found := -1
	for i, n := range topology.Nodes {
		if !strings.HasPrefix(n.Name, prefix) {
			continue
		}
		if found >= 0 {
			require.Equal(t, found, out[i], n.Name)
		}
		found = out[i]
	}
	return found
}

// bisection returns the bandwidth from the nodes of one side to the others.
func bisection(topology *Topology, side func(name string) bool) float64 {
	sum := 0.0
	for _, l := range topology.Links {
		if side(topology.Nodes[l.From].Name) && !side(topology.Nodes[l.To].Name) {
			sum += topology.Classes[l.Class].Bandwidth
		}
	}
	return sum
}

func TestGenerators(t *testing.T) {
	for _, c := range []struct {
		topology                *Topology
		ranks, degree, diameter int
		links                   int
	}{
		{Uniform(8, wire), 8, 1, 2, 16},
		{NVLink(8, wire), 8, 1, 2, 16},
		{PCIe(8, wire, wire), 8, 1, 5, 16 + 8 + 2},
		{PCIe(4, wire, wire), 4, 1, 4, 8 + 4},
		{PCIe(1, wire, wire), 1, 1, 0, 4},
		{Ring(7, wire), 7, 2, 3, 14},
		{Ring(2, wire), 2, 1, 1, 2},
		{Ring(1, wire), 1, 0, 0, 0},
		{Torus([]int{4, 6}, wire), 24, 4, 5, 96},
		{Torus([]int{2, 3, 4}, wire), 24, 5, 4, 120},
		{FatTree(16, 4, 1, wire), 16, 1, 4, 32 + 32},
		{FatTree(16, 4, 2, wire), 16, 1, 4, 32 + 16},
		{FatTree(4, 4, 2, wire), 4, 1, 2, 8},
		{Dragonfly(5, 2, 2, wire, wire), 20, 1, 5, 40 + 10 + 20},
		{Rail(4, 2, wire, wire), 8, 2, 4, 16 + 16 + 8},
		{Rail(1, 4, wire, wire), 4, 1, 2, 8},
		{Rail(4, 1, wire, wire), 4, 2, 2, 16},
	} {
		name := c.topology.Name
		require.NoError(t, c.topology.Validate(), name)
		require.Equal(t, c.ranks, c.topology.Ranks(), name)
		require.Equal(t, c.degree, degree(t, c.topology, "r"+"0"), name)
		require.Equal(t, c.diameter, diameter(t, c.topology), name)
		require.Len(t, c.topology.Links, c.links, name)
	}
}

func TestBisection(t *testing.T) {
	half := func(names ...string) func(string) bool {
		return func(name string) bool {
			for _, n := range names {
				if n == name {
					return true
				}
			}
			return false
		}
	}
	require.Equal(t, 2*25e9, bisection(Ring(4, wire), half("r0", "r1")))
	var west []string // columns 0 and 1 of a 4x4 torus: two cuts, a link in each of four rows
	for i := range 16 {
		if i%4 < 2 {
			west = append(west, Torus([]int{4, 4}, wire).Nodes[i].Name)
		}
	}
	require.Equal(t, 8*25e9, bisection(Torus([]int{4, 4}, wire), half(west...)))
	leaves := half("r0", "r1", "r2", "r3", "leaf0")
	require.Equal(t, 4*25e9, bisection(FatTree(8, 4, 1, wire), leaves))
	require.Equal(t, 2*25e9, bisection(FatTree(8, 4, 2, wire), leaves), "two ranks share an uplink")
	require.Equal(t, 25e9,
		bisection(PCIe(8, Wire{0, 50e9}, wire), half("r0", "r1", "r2", "r3", "plx0", "plx1", "host0")))
}

func TestRouting(t *testing.T) {
	torus := Torus([]int{4, 4}, wire)
	r, err := NewRouter(torus)
	require.NoError(t, err)
	path, err := r.Route(nil, 0, 5) // (1,1): along the first dimension first
	require.NoError(t, err)
	require.Equal(t, 1, torus.Links[path[0]].To)
	require.Equal(t, 5, torus.Links[path[1]].To)

	tree := FatTree(32, 8, 1, wire)
	r, err = NewRouter(tree)
	require.NoError(t, err)
	spines := map[int]int{}
	for a := range 8 {
		for b := 8; b < 32; b++ {
			path, err := r.Route(nil, a, b)
			require.NoError(t, err)
			again, err := r.Route(nil, a, b)
			require.NoError(t, err)
			require.Equal(t, path, again)
			spines[tree.Links[path[1]].To]++
		}
	}
	require.Len(t, spines, 8, "all spines are used")

	rail := Rail(4, 2, wire, wire)
	r, err = NewRouter(rail)
	require.NoError(t, err)
	path, err = r.Route(nil, 0, 6)
	require.NoError(t, err)
	require.Equal(t, "rail0", rail.Nodes[rail.Links[path[0]].To].Name, "GPU 0 of host 3 is on the same rail")
}

func TestNoRoute(t *testing.T) {
	topology := &Topology{Name: "islands"}
	c := topology.AddClass("wire", 0, 1)
	a, b := topology.AddRank("a", false), topology.AddRank("b", false)
	topology.AddRank("c", false)
	topology.AddLink(a, b, c)
	topology.AddLink(b, 2, c)
	r, err := NewRouter(topology)
	require.NoError(t, err)
	_, err = r.Route(nil, 0, 2)
	require.ErrorContains(t, err, "rank 0 (a) has no path to rank 2 (c)", "b forwards nothing")
	require.ErrorIs(t, err, fault.Invalid)
	_, err = r.Route(nil, 0, 3)
	require.ErrorContains(t, err, "there are 3 ranks")
	topology.Nodes[b].Forwards = true
	r, err = NewRouter(topology)
	require.NoError(t, err)
	path, err := r.Route(nil, 0, 2)
	require.NoError(t, err)
	require.Len(t, path, 2)
}

func TestDistancesAreForgotten(t *testing.T) {
	r, err := NewRouter(Ring(8, wire))
	require.NoError(t, err)
	_, err = r.Route(nil, 0, 1)
	require.NoError(t, err)
	r.kept = maxDistances
	_, err = r.Route(nil, 0, 2)
	require.NoError(t, err)
	require.Nil(t, r.distance[1])
}

func TestParse(t *testing.T) {
	for text, name := range map[string]string{
		"uniform:8,alpha=1us,bw=25GB": "uniform-8",
		"uniform":                     "uniform-6",
		"nvlink:8,bw=450GB/s":         "nvlink-8",
		"pcie:8,bw=32GB,socket_bw=20GB,socket_alpha=1us": "pcie-8",
		"ring,bw=1GiB":                                    "ring-6",
		"torus:8x8,alpha=1us,bw=25GB":                     "torus-8-8",
		"torus:2x3x4":                                     "torus-2-3-4",
		"fattree:64,leaf=8,over=2,bw=100Gbit":             "fattree-64-8-2",
		"dragonfly:9x4x2,global_bw=10GB":                  "dragonfly-9-4-2",
		"rail:16x8,bw=450GB,nic_bw=400Gbit,nic_alpha=2us": "rail-16-8",
	} {
		topology, err := Parse(text, 6)
		require.NoError(t, err, text)
		require.Equal(t, name, topology.Name)
	}
	topology, err := Parse("pcie:8,alpha=500ns,bw=32GB,socket_bw=20GB,startup=2us", 0)
	require.NoError(t, err)
	require.Equal(t, []Class{{Name: "pcie", Alpha: 500 * 1e-9, Bandwidth: 32e9},
		{Name: "socket", Alpha: 500 * 1e-9, Bandwidth: 20e9}}, topology.Classes)
	require.Equal(t, 2*1e-6, topology.Startup)

	for text, words := range map[string]string{
		"hypercube:8":             `unknown kind "hypercube"; known: uniform[:RANKS]`,
		"torus:8":                 "must be AxB or AxBxC",
		"torus":                   "must be AxB",
		"torus:8xx":               "must be AxB",
		"uniform:0":               "want 1 to 65536 ranks",
		"torus:60000x60000":       "want 1 to 65536 ranks",
		"uniform:8,bw=fast":       `bandwidth "fast"`,
		"uniform:8,bw=0":          "more than 0",
		"uniform:8,alpha=-1us":    `time "-1us"`,
		"uniform:8,startup=x":     `time "x"`,
		"uniform:8,speed=3":       `"speed=3" is not one of alpha=VALUE, bw=VALUE`,
		"uniform:8,bw=1GB,bw=1GB": "each at most once",
		"fattree:8,leaf=0":        "leaf=0: want 1",
		"fattree:65536,leaf=1":    "",
		"fattree:65536,leaf=256":  "",
		"dragonfly:2x30000x1":     "more than 2097152 links",
	} {
		_, err := Parse(text, 6)
		if words == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, words, text)
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]float64{
		"1us": 1e-6, "500ns": 500 * 1e-9, "0": 0, "2ms": 2e-3, "1e-6": 1e-6, "3µs": 3 * 1e-6, "1e-06s": 1e-6,
	} {
		v, err := ParseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want, v, text)
	}
	for text, want := range map[string]float64{
		"25GB": 25e9, "600GB/s": 600e9, "100Gbit": 12.5e9, "1GiB": 1 << 30, "7": 7, "7b": 7, "8bit/s": 1,
	} {
		v, err := parseBandwidth(text)
		require.NoError(t, err, text)
		require.Equal(t, want, v, text)
	}
}

func samples() []*Topology {
	return []*Topology{Uniform(3, Wire{1.1e-6, 1e9 / 3}), PCIe(6, wire, wire), Torus([]int{2, 3}, wire),
		Dragonfly(3, 2, 1, wire, wire), Rail(2, 2, wire, wire)}
}

func TestFilesRoundTrip(t *testing.T) {
	for _, topology := range samples() {
		var text, asJSON bytes.Buffer
		require.NoError(t, topology.WriteText(&text))
		require.NoError(t, topology.WriteJSON(&asJSON))
		for _, form := range []string{text.String(), asJSON.String()} {
			back, err := Read(strings.NewReader(form))
			require.NoError(t, err, form)
			require.Equal(t, topology, back)
		}
	}
	bad := &Topology{}
	require.Error(t, bad.WriteText(&bytes.Buffer{}))
	require.Error(t, bad.WriteJSON(&bytes.Buffer{}))
}

func TestMalformedFiles(t *testing.T) {
	const head = "goccl topology format 1\nname x\nclass c alpha=1us bw=1GB\nrank a\nrank b # the other\n"
	_, err := Read(strings.NewReader(head + "duplex a b c\n"))
	require.NoError(t, err)
	for text, words := range map[string]string{
		"":                                        "line 1, column 1: the file is empty",
		"# nothing\n":                             "the file is empty",
		"goccl topology format 2":                 `line 1, column 1: want "goccl topology format 1"`,
		head + "wire a b c":                       `line 6, column 1: unknown word "wire"`,
		head + "link a b":                         `line 6, column 9: want "link FROM TO CLASS"`,
		head + "link a b c d":                     `line 6, column 12: want "link FROM TO CLASS"`,
		head + "link a  z c":                      `line 6, column 9: no node "z" above`,
		head + "link z a c":                       `line 6, column 6: no node "z" above`,
		head + "link a b z":                       `line 6, column 10: no class "z" above`,
		head + "link a a c":                       `line 6, column 8: a link from "a" to itself`,
		head + "rank a":                           `line 6, column 6: a second node "a"`,
		head + "rank d slow":                      `line 6, column 8: "slow" is no part of a machine`,
		head + "switch d*":                        `line 6, column 8: the name "d*"`,
		head + "class c alpha=0 bw=1GB":           `line 6, column 7: a second class "c"`,
		head + "class d bw=1GB alpha=0":           "line 6, column 9: want alpha=TIME",
		head + "class d alpha=0 alpha=0":          "line 6, column 17: want bw=BANDWIDTH",
		head + "class d alpha=x bw=1GB":           `line 6, column 9: time "x"`,
		head + "class d alpha=0 bw=-1":            `line 6, column 17: bandwidth "-1"`,
		head + "class d* alpha=0 bw=1":            `line 6, column 7: the name "d*"`,
		head + "startup soon":                     `line 6, column 9: time "soon"`,
		head + "routing best":                     `line 6, column 9: unknown routing "best"`,
		"goccl topology format 1\nname x":         "no node is a rank",
		"goccl topology format 1\nrank x":         `the name ""`,
		"{\n \"goccl_topology\": }":               "line 2, column 21: invalid character",
		"{\n \"goccl_topology\": \"1\"}":          "line 2, column 23",
		`{"goccl_topology":1,"speed":3}`:          "unknown field",
		`{"goccl_topology":2}`:                    "goccl_topology is 2",
		`{"goccl_topology":1,"routing":"x"}`:      `unknown routing "x"`,
		`{"goccl_topology":1,"routing":"ecmp"} 1`: "something follows",
	} {
		_, err := Read(strings.NewReader(text))
		require.ErrorContains(t, err, words, text)
		require.ErrorIs(t, err, fault.Invalid)
	}
}

func TestValidate(t *testing.T) {
	for words, spoil := range map[string]func(*Topology){
		"startup -1 s":                 func(x *Topology) { x.Startup = -1 },
		"unknown routing 7":            func(x *Topology) { x.Routing = 7 },
		"two classes are called":       func(x *Topology) { x.AddClass("port", 0, 1) },
		"alpha must be 0 or more":      func(x *Topology) { x.AddClass("y", -1, 1) },
		"the bandwidth must be more":   func(x *Topology) { x.AddClass("y", 0, 0) },
		"class 1: its name":            func(x *Topology) { x.AddClass("", 0, 1) },
		"two nodes are called":         func(x *Topology) { x.AddSwitch("r0") },
		"node 4: the name":             func(x *Topology) { x.AddSwitch("r 0") },
		"switches always forward":      func(x *Topology) { x.Nodes[3].Forwards = true },
		"there are 4 nodes":            func(x *Topology) { x.AddLink(0, 4, 0) },
		`from node "r0" to itself`:     func(x *Topology) { x.AddLink(0, 0, 0) },
		"is of class 1, there are 1":   func(x *Topology) { x.AddLink(0, 1, 1) },
		"257 classes of links, at":     func(x *Topology) { x.Classes = make([]Class, 257) },
		"262145 nodes, at most 262144": func(x *Topology) { x.Nodes = make([]Node, MaxNodes+1) },
		"2097153 links, at most":       func(x *Topology) { x.Links = make([]Link, MaxLinks+1) },
	} {
		x := Uniform(3, wire)
		spoil(x)
		require.ErrorContains(t, x.Validate(), words)
		_, err := NewRouter(x)
		require.Error(t, err)
	}
}

func FuzzRead(f *testing.F) {
	for _, topology := range samples() {
		var text, asJSON bytes.Buffer
		require.NoError(f, topology.WriteText(&text))
		require.NoError(f, topology.WriteJSON(&asJSON))
		f.Add(text.Bytes())
		f.Add(asJSON.Bytes())
	}
	for _, text := range []string{
		"goccl topology format 1\nname x\nclass c alpha=NaN bw=0\n",
		"goccl topology format 1\nname x\nrank a\nrank a\n",
		"{\"links\":[[[",
		jsonFile(`{"name":"c","alpha":1e308,"bandwidth":5e-324}`, `{"from":0,"to":1,"class":0}`),
		jsonFile(`null`, `null,null`),
		jsonFile(`{"Name":"c","name":"\\\"","bandwidth":1e999}`, `{"from":-1,"to":9e9}`),
	} {
		f.Add([]byte(text))
	}
	for _, name := range xmlFiles {
		text, err := os.ReadFile("testdata/" + name + ".xml")
		require.NoError(f, err)
		f.Add(text)
	}
	for _, text := range []string{
		gpus(`<nvlink target="0000:02:00.0" count="2"/><nvlink target="fffffff:ffff:ff"/><c2c bw="1" count="1"/>`),
		slot("32.0 GT/s PCIe", "16"), system(`<nic><net name="mlx5_0" dev="0" speed="1" port="2"/></nic>`), machine(pu),
		machine(`<object type="L2Cache"><object type="NUMANode" os_index="1"/>` + pu + `</object>`),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		topology, err := Read(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, fault.Invalid)
			return
		}
		var again bytes.Buffer
		require.NoError(t, topology.WriteText(&again))
		back, err := Read(&again)
		require.NoError(t, err)
		require.Equal(t, len(topology.Links), len(back.Links))
		require.Equal(t, topology.Name, back.Name)
		r, err := NewRouter(topology)
		require.NoError(t, err)
		for to := range min(r.Ranks(), 4) {
			if _, err := r.Route(nil, r.Ranks()-1, to); err != nil {
				require.NotEqual(t, byte('<'), bytes.TrimSpace(text)[0], "in XML all ranks reach each other")
				require.ErrorIs(t, err, fault.Invalid)
			}
		}
	})
}
