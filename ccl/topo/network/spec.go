package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxRanks is the most ranks that a generated topology may have.
const MaxRanks = 1 << 16

// generator is a kind of network that Parse knows.
type generator struct {
	name string
	// dims is how many numbers the size has, at least and at most. If the least is 0, the size may
	// be left out and is then the caller's number of ranks.
	dims [2]int
	size string   // how the size is written
	keys []string // parameters besides alpha, bw and startup
	make func(d []int, v *values) *Topology
}

var generators = []generator{
	{"uniform", [2]int{0, 1}, "RANKS", nil, func(d []int, v *values) *Topology { return Uniform(d[0], v.wire("")) }},
	{"nvlink", [2]int{0, 1}, "RANKS", nil, func(d []int, v *values) *Topology { return NVLink(d[0], v.wire("")) }},
	{"pcie", [2]int{0, 1}, "RANKS", []string{"socket_alpha", "socket_bw"}, func(d []int, v *values) *Topology {
		return PCIe(d[0], v.wire(""), v.wire("socket_"))
	}},
	{"ring", [2]int{0, 1}, "RANKS", nil, func(d []int, v *values) *Topology { return Ring(d[0], v.wire("")) }},
	{"torus", [2]int{2, 3}, "AxB or AxBxC", nil, func(d []int, v *values) *Topology { return Torus(d, v.wire("")) }},
	{"fattree", [2]int{0, 1}, "RANKS", []string{"leaf", "over"}, func(d []int, v *values) *Topology {
		return FatTree(d[0], v.count("leaf", 8), v.count("over", 1), v.wire(""))
	}},
	{"dragonfly", [2]int{3, 3}, "GROUPSxROUTERSxRANKS", []string{"global_alpha", "global_bw"},
		func(d []int, v *values) *Topology {
			return Dragonfly(d[0], d[1], d[2], v.wire(""), v.wire("global_"))
		}},
	{"rail", [2]int{2, 2}, "HOSTSxGPUS", []string{"nic_alpha", "nic_bw"}, func(d []int, v *values) *Topology {
		return Rail(d[0], d[1], v.wire(""), v.wire("nic_"))
	}},
}

// Kinds returns the forms of text that Parse understands, one per line.
func Kinds() []string {
	var lines []string
	for _, g := range generators {
		line := g.name + ":" + g.size
		if g.dims[0] == 0 {
			line = g.name + "[:" + g.size + "]"
		}
		line += ",alpha=TIME,bw=BANDWIDTH"
		for _, key := range g.keys {
			line += "," + key + "=…"
		}
		lines = append(lines, line+"[,startup=TIME]")
	}
	return lines
}

// Parse makes the topology that a text such as "torus:8x8,alpha=1us,bw=25GB" names; Kinds lists the
// forms of the text. A text without a size means the given number of ranks. alpha defaults to 0 and
// bw to 1 GB/s; the parameters that begin with socket_, global_ or nic_ default to alpha and bw.
func Parse(text string, ranks int) (*Topology, error) {
	words := strings.Split(text, ",")
	name, size, sized := strings.Cut(words[0], ":")
	i := slices.IndexFunc(generators, func(g generator) bool { return g.name == name })
	if i < 0 {
		return nil, invalid("unknown kind %s; known: %s", quote(name), strings.Join(Kinds(), "; "))
	}
	g := generators[i]
	dims := []int{ranks}
	if sized || g.dims[0] > 0 {
		var err error
		if dims, err = parseDims(size); err != nil || len(dims) < g.dims[0] || len(dims) > g.dims[1] {
			return nil, invalid("%s: the size %s must be %s", name, quote(size), g.size)
		}
	}
	total := 1
	for _, d := range dims {
		if d < 1 || d > MaxRanks || total*d > MaxRanks {
			return nil, invalid("%s: size %v, want 1 to %d ranks in all", name, dims, MaxRanks)
		}
		total *= d
	}
	v := &values{of: map[string]string{}}
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		known := append([]string{"alpha", "bw", "startup"}, g.keys...)
		if _, twice := v.of[key]; !ok || twice || !slices.Contains(known, key) {
			return nil, invalid("%s: %s is not one of %s=VALUE, each at most once",
				name, quote(word), strings.Join(known, "=VALUE, "))
		}
		v.of[key] = value
	}
	if links := v.links(name, dims); links > MaxLinks {
		return nil, invalid("%s: %v has more than %d links", name, dims, MaxLinks)
	}
	t := g.make(dims, v)
	if startup, ok := v.of["startup"]; ok {
		s, err := ParseTime(startup)
		v.keep(err)
		t.Startup += s
	}
	if v.err != nil {
		return nil, invalid("%s: %v", name, v.err)
	}
	return t, t.Validate()
}

// parseDims parses sizes such as "8x16".
func parseDims(s string) ([]int, error) {
	var dims []int
	for _, word := range strings.Split(s, "x") {
		d, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		dims = append(dims, d)
	}
	return dims, nil
}

// values holds the parameters of a text, and the first error in them.
type values struct {
	of  map[string]string
	err error
}

func (v *values) keep(err error) {
	if v.err == nil {
		v.err = err
	}
}

// wire reads alpha and bw with a prefix; a missing one is taken without the prefix.
func (v *values) wire(prefix string) Wire {
	w := Wire{0, 1e9}
	for _, p := range []string{"", prefix} {
		if s, ok := v.of[p+"alpha"]; ok {
			a, err := ParseTime(s)
			v.keep(err)
			w.Alpha = a
		}
		if s, ok := v.of[p+"bw"]; ok {
			b, err := parseBandwidth(s)
			v.keep(err)
			w.Bandwidth = b
		}
	}
	return w
}

// count reads a number from 1 to MaxRanks; a missing one is otherwise.
func (v *values) count(key string, otherwise int) int {
	s, ok := v.of[key]
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxRanks {
		v.keep(fmt.Errorf("%s=%s: want 1 to %d", key, s, MaxRanks))
		return otherwise
	}
	return n
}

// links returns the number of links of a network whose kind may have many more links than ranks,
// and 0 for other kinds.
func (v *values) links(name string, d []int) int {
	switch name {
	case "fattree":
		return fatTreeLinks(d[0], v.count("leaf", 8), v.count("over", 1))
	case "dragonfly":
		return dragonflyLinks(d[0], d[1], d[2])
	case "rail":
		return railLinks(d[0], d[1])
	}
	return 0
}
