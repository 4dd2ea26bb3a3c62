package network

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/humanize"
)

const forwards = "forwards" // of ranks

// Format is the version of the file formats.
const Format = 1

// WriteText writes t as text for people; Read reads it back.
//
//	goccl topology format 1
//	name NAME
//	startup TIME                     left out where it is 0
//	routing first|ecmp               left out where it is first
//	limits [cores=NUMBER] [memory=BYTES] [shared=BYTES]   of a container
//	class NAME alpha=TIME bw=BANDWIDTH [burst=BYTES]
//	rank NAME [forwards] [PART [BYTES]]
//	switch NAME [PART [BYTES]]       PART is what the node is, where it was found: core, cache …
//	link FROM TO CLASS
//	duplex A B CLASS                 a link from A to B, then one from B to A
//
// TIME is a number with ns, us, ms or s; BANDWIDTH is a number with B, KB, KiB, Kbit, … per second.
// A # begins a comment.
func (t *Topology) WriteText(w io.Writer) error {
	if err := t.Validate(); err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "goccl topology format %d\nname %s\n", Format, t.Name)
	if t.Startup != 0 {
		fmt.Fprintf(out, "startup %s\n", formatAlpha(t.Startup))
	}
	if t.Routing != First {
		fmt.Fprintf(out, "routing %v\n", t.Routing)
	}
	if t.Limits != (Limits{}) {
		fmt.Fprintln(out, t.Limits.line())
	}
	for _, c := range t.Classes {
		fmt.Fprintf(out, "class %s alpha=%s bw=%s", c.Name, formatAlpha(c.Alpha), formatBandwidth(c.Bandwidth))
		if c.Burst > 0 {
			fmt.Fprintf(out, " burst=%d", c.Burst)
		}
		fmt.Fprintln(out)
	}
	for i := range t.Nodes {
		fmt.Fprintln(out, t.Nodes[i].line())
	}
	for i := 0; i < len(t.Links); i++ {
		l, word := t.Links[i], "link"
		if i+1 < len(t.Links) && t.Links[i+1] == (Link{l.To, l.From, l.Class}) {
			word = "duplex"
			i++
		}
		fmt.Fprintf(out, "%s %s %s %s\n", word, t.Nodes[l.From].Name, t.Nodes[l.To].Name, t.Classes[l.Class].Name)
	}
	return out.Flush()
}

// line is the statement of a node.
func (n *Node) line() string {
	words := []string{"switch", n.Name}
	if n.Rank {
		words[0] = "rank"
	}
	if n.Forwards {
		words = append(words, forwards)
	}
	if n.Part != "" {
		words = append(words, string(n.Part))
	}
	if n.Bytes > 0 {
		words = append(words, humanize.FormatSize(n.Bytes))
	}
	return strings.Join(words, " ")
}

// file is the JSON form.
type file struct {
	Format  int     `json:"goccl_topology"`
	Name    string  `json:"name"`
	Startup float64 `json:"startup,omitempty"`
	Routing string  `json:"routing"`
	Limits  *Limits `json:"limits,omitempty"`
	Classes []Class `json:"classes"`
	Nodes   []Node  `json:"nodes"`
	Links   []Link  `json:"links"`
}

// WriteJSON writes t as JSON, for tools; Read reads it back. Times are in seconds, bandwidths in
// bytes per second.
func (t *Topology) WriteJSON(w io.Writer) error {
	if err := t.Validate(); err != nil {
		return err
	}
	var limits *Limits
	if t.Limits != (Limits{}) {
		limits = &t.Limits
	}
	text, err := json.MarshalIndent(
		file{Format, t.Name, t.Startup, t.Routing.String(), limits, t.Classes, t.Nodes, t.Links}, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// Read reads any of the forms and checks it. Errors report line and column.
func Read(r io.Reader) (*Topology, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "reading a topology")
	}
	if len(text) > MaxFile {
		return nil, invalid("the file is longer than %d bytes", MaxFile)
	}
	switch trimmed := bytes.TrimLeft(text, " \t\r\n"); {
	case bytes.HasPrefix(trimmed, []byte("{")):
		return readJSON(text)
	case bytes.HasPrefix(trimmed, []byte("<")):
		return readXML(text)
	}
	return readText(text)
}

func readJSON(text []byte) (*Topology, error) {
	if err := crowded(text); err != nil {
		return nil, err
	}
	var f file
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows the topology")
		}
	}
	if err != nil {
		offset := decoder.InputOffset()
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) {
			offset = syntax.Offset
		} else if errors.As(err, &kind) {
			offset = kind.Offset
		}
		line, column := position(text, int(offset))
		return nil, invalid("line %d, column %d: %v", line, column, err)
	}
	if f.Format != Format {
		return nil, invalid("line 1, column 1: goccl_topology is %d, this version reads %d", f.Format, Format)
	}
	routing, ok := parseRouting(f.Routing)
	if !ok {
		return nil, invalid("line 1, column 1: unknown routing %s; known: first, ecmp", quote(f.Routing))
	}
	t := &Topology{Name: f.Name, Startup: f.Startup, Routing: routing,
		Classes: f.Classes, Nodes: f.Nodes, Links: f.Links}
	if f.Limits != nil {
		t.Limits = *f.Limits
	}
	if at, wrong := t.problem(); wrong != "" {
		line, column := 1, 1
		scan(text, func(e entry) bool {
			found := strings.EqualFold(e.key, at.list) && e.index == at.index
			if found {
				line, column = position(text, e.offset)
			}
			return !found
		})
		return nil, invalid("line %d, column %d: %s", line, column, wrong)
	}
	return t, nil
}

// fields maps the keys of the JSON form to the most elements that their lists may have.
var fields = map[string]int{"goccl_topology": 0, "name": 0, "startup": 0, "routing": 0, "limits": 0,
	"classes": MaxClasses, "nodes": MaxNodes, "links": MaxLinks}

// crowded refuses lists that are too long, unknown keys, and keys that occur twice, before the
// decoder allocates memory for them.
func crowded(text []byte) error {
	seen := map[string]bool{}
	wrong := ""
	at := 0
	scan(text, func(e entry) bool {
		key := strings.ToLower(e.key)
		limit, known := fields[key]
		switch {
		case !known:
			wrong = fmt.Sprintf(
				"unknown field %s; known: goccl_topology, name, startup, routing, limits, classes, nodes, links",
				quote(e.key))
		case e.index < 0 && seen[key]:
			wrong = fmt.Sprintf("a second %q; leave one", e.key)
		case e.index >= 0 && e.index >= limit:
			wrong = fmt.Sprintf("more than %d elements in %q", limit, e.key)
		}
		seen[key] = true
		at = e.offset
		return wrong == ""
	})
	if wrong == "" {
		return nil
	}
	line, column := position(text, at)
	return invalid("line %d, column %d: %s", line, column, wrong)
}

func position(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	line = 1 + bytes.Count(before, []byte{'\n'})
	return line, 1 + len(before) - (bytes.LastIndexByte(before, '\n') + 1)
}

func parseRouting(s string) (Routing, bool) {
	for _, r := range []Routing{First, ECMP} {
		if s == r.String() {
			return r, true
		}
	}
	return First, false
}

// reader reads the text form.
type reader struct {
	t       Topology
	begun   bool // the head has been read
	line    int
	words   []string
	columns []int
	nodes   map[string]int
	classes map[string]int
	said    map[string]bool  // statements that may occur once, and have occurred
	lines   map[string][]int // line of each class, node and link
}

func readText(text []byte) (*Topology, error) {
	r := &reader{nodes: map[string]int{}, classes: map[string]int{}, said: map[string]bool{}, lines: map[string][]int{}}
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		r.line++
		r.split(line)
		if len(r.words) == 0 {
			continue
		}
		if !r.begun {
			if strings.Join(r.words, " ") != fmt.Sprintf("goccl topology format %d", Format) {
				return nil, r.wrong(0, "want \"goccl topology format %d\"", Format)
			}
			r.begun = true
			continue
		}
		if err := r.statement(); err != nil {
			return nil, err
		}
	}
	if !r.begun {
		return nil, invalid("line 1, column 1: the file is empty; want \"goccl topology format %d\"", Format)
	}
	if at, wrong := r.t.problem(); wrong != "" {
		line := r.line // a problem of the whole file is reported at its last line
		if lines := r.lines[at.list]; at.index >= 0 && at.index < len(lines) {
			line = lines[at.index]
		}
		return nil, invalid("line %d, column 1: %s", line, wrong)
	}
	return &r.t, nil
}

// maxWords is more words than any statement has.
const maxWords = 8

// split cuts a line into words and records where they start, counted in characters. It drops the
// last words of a line that has too many.
func (r *reader) split(line []byte) {
	r.words, r.columns = r.words[:0], r.columns[:0]
	line, _, _ = bytes.Cut(line, []byte{'#'})
	for at := 0; at < len(line) && len(r.words) < maxWords; {
		if bytes.IndexByte([]byte(" \t\r"), line[at]) >= 0 {
			at++
			continue
		}
		end := at
		for end < len(line) && bytes.IndexByte([]byte(" \t\r"), line[end]) < 0 {
			end++
		}
		r.words = append(r.words, string(line[at:end]))
		r.columns = append(r.columns, 1+utf8.RuneCount(line[:at]))
		at = end
	}
}

func (r *reader) wrong(word int, format string, args ...any) error {
	column := 1
	if word < len(r.columns) {
		column = r.columns[word]
	} else if n := len(r.columns); n > 0 {
		column = r.columns[n-1] + utf8.RuneCountInString(r.words[n-1])
	}
	return invalid("line %d, column %d: %s", r.line, column, fmt.Sprintf(format, args...))
}

// usage is the least and the most words of each statement, and its form.
var usage = map[string]struct {
	low, high int
	text      string
}{
	"name":    {2, 2, "name NAME"},
	"startup": {2, 2, "startup TIME"},
	"routing": {2, 2, "routing first|ecmp"},
	"limits":  {2, 4, "limits [cores=NUMBER] [memory=BYTES] [shared=BYTES]"},
	"class":   {4, 5, "class NAME alpha=TIME bw=BANDWIDTH [burst=BYTES]"},
	"rank":    {2, 5, "rank NAME [forwards] [PART [BYTES]]"},
	"switch":  {2, 4, "switch NAME [PART [BYTES]]"},
	"link":    {4, 4, "link FROM TO CLASS"},
	"duplex":  {4, 4, "duplex A B CLASS"},
}

func (r *reader) statement() error {
	w := r.words
	form, ok := usage[w[0]]
	if !ok {
		return r.wrong(0, "unknown word %s; known: name, startup, routing, limits, class, rank, switch, link, duplex",
			quote(w[0]))
	}
	if len(w) < form.low || len(w) > form.high {
		return r.wrong(min(len(w), form.high), "want %q", form.text)
	}
	switch w[0] {
	case "name", "startup", "routing", "limits":
		if r.said[w[0]] {
			return r.wrong(0, "a second %q; leave one", w[0])
		}
		r.said[w[0]] = true
	}
	switch w[0] {
	case "name":
		if !validName(w[1]) {
			return r.wrong(1, "%s", badName(w[1]))
		}
		r.t.Name = w[1]
	case "startup":
		v, err := ParseTime(w[1])
		if err != nil {
			return r.wrong(1, "%v", err)
		}
		r.t.Startup = v
	case "routing":
		if r.t.Routing, ok = parseRouting(w[1]); !ok {
			return r.wrong(1, "unknown routing %s; known: first, ecmp", quote(w[1]))
		}
	case "limits":
		for i, word := range w[1:] {
			if err := r.t.Limits.set(word); err != nil {
				return r.wrong(1+i, "%v", err)
			}
		}
	case "class":
		return r.class()
	case "rank", "switch":
		return r.node()
	case "link", "duplex":
		return r.link()
	}
	return nil
}

func (r *reader) class() error {
	w := r.words
	if _, twice := r.classes[w[1]]; twice {
		return r.wrong(1, "a second class %s; names are unique", quote(w[1]))
	}
	if len(r.t.Classes) == MaxClasses {
		return r.wrong(0, "more than %d classes", MaxClasses)
	}
	alpha, ok := strings.CutPrefix(w[2], "alpha=")
	if !ok {
		return r.wrong(2, "want alpha=TIME")
	}
	bandwidth, ok := strings.CutPrefix(w[3], "bw=")
	if !ok {
		return r.wrong(3, "want bw=BANDWIDTH")
	}
	a, err := ParseTime(alpha)
	if err != nil {
		return r.wrong(2, "%v", err)
	}
	b, err := parseBandwidth(bandwidth)
	if err != nil {
		return r.wrong(3, "%v", err)
	}
	if !validName(w[1]) {
		return r.wrong(1, "%s", badName(w[1]))
	}
	burst := int64(0)
	if len(w) > 4 {
		text, ok := strings.CutPrefix(w[4], "burst=")
		if !ok {
			return r.wrong(4, "want burst=BYTES")
		}
		if burst, err = humanize.ParseSize(text); err != nil {
			return r.wrong(4, "%v", err)
		}
	}
	r.lines["classes"] = append(r.lines["classes"], r.line)
	at := r.t.AddClass(w[1], a, b)
	r.classes[w[1]], r.t.Classes[at].Burst = at, burst
	return nil
}

func (r *reader) node() error {
	w := r.words
	if _, twice := r.nodes[w[1]]; twice {
		return r.wrong(1, "a second node %s; names are unique", quote(w[1]))
	}
	if len(r.t.Nodes) == MaxNodes {
		return r.wrong(0, "more than %d nodes", MaxNodes)
	}
	if !validName(w[1]) {
		return r.wrong(1, "%s", badName(w[1]))
	}
	n, more := Node{Name: w[1], Rank: w[0] == "rank"}, 2
	if n.Rank && len(w) > more && w[more] == forwards {
		n.Forwards = true
		more++
	}
	if len(w) > more {
		if n.Part = Part(w[more]); !slices.Contains(parts, n.Part) {
			return r.wrong(more, "%s", badPart(w[more]))
		}
		more++
	}
	if len(w) > more {
		var err error
		if n.Bytes, err = humanize.ParseSize(w[more]); err != nil {
			return r.wrong(more, "%v", err)
		}
		more++
	}
	if len(w) > more {
		return r.wrong(more, "want %q", usage[w[0]].text)
	}
	r.lines["nodes"] = append(r.lines["nodes"], r.line)
	r.nodes[w[1]] = r.t.AddNode(n)
	return nil
}

func (r *reader) link() error {
	w := r.words
	from, ok := r.nodes[w[1]]
	if !ok {
		return r.wrong(1, "no node %s above", quote(w[1]))
	}
	to, ok := r.nodes[w[2]]
	if !ok {
		return r.wrong(2, "no node %s above", quote(w[2]))
	}
	class, ok := r.classes[w[3]]
	if !ok {
		return r.wrong(3, "no class %s above", quote(w[3]))
	}
	if from == to {
		return r.wrong(2, "a link from %q to itself", w[1])
	}
	if len(r.t.Links)+2 > MaxLinks {
		return r.wrong(0, "more than %d links", MaxLinks)
	}
	r.lines["links"] = append(r.lines["links"], r.line)
	if w[0] == "link" {
		r.t.AddLink(from, to, class)
	} else {
		r.lines["links"] = append(r.lines["links"], r.line)
		r.t.AddDuplex(from, to, class)
	}
	return nil
}
