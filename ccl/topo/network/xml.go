package network

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits on XML files, each far above what a machine of thousands of cores needs.
const (
	maxXML        = 8 << 20 // bytes
	maxPiece      = 1 << 20 // bytes of a tag, a comment or a text
	maxPieces     = 200_000
	maxDepth      = 64
	maxAttributes = 64
	maxMemories   = 512 // NUMA nodes: each is connected with each
)

// form is an XML format: by the name of an element, those that it may be in, and the attributes
// that are read. What a form does not list is passed over.
type form map[string]struct{ within, attributes []string }

// element is one of an XML file.
type element struct {
	name       string
	attributes []xml.Attr
	inside     []*element
	offset     int // where it begins
}

// get returns an attribute without blanks around it, "" where it is left out.
func (e *element) get(name string) string {
	for i := range e.attributes {
		if e.attributes[i].Name.Local == name {
			return strings.TrimSpace(e.attributes[i].Value)
		}
	}
	return ""
}

// xmlFile reads a file piece by piece, so that none makes the decoder take more memory than
// maxPiece needs.
type xmlFile struct {
	text    []byte
	at, end int // what the decoder has read, and may read
	decoder *xml.Decoder
	pieces  int
}

var (
	errLong     = errors.New("a piece that is too long")
	errEncoding = errors.New("another encoding than UTF-8")
)

func (f *xmlFile) ReadByte() (byte, error) {
	if f.at == len(f.text) {
		return 0, io.EOF
	}
	if f.at == f.end {
		return 0, errLong
	}
	f.at++
	return f.text[f.at-1], nil
}

// Read is there for the decoder to take f; it calls ReadByte.
func (f *xmlFile) Read(p []byte) (int, error) {
	b, err := f.ReadByte()
	if err != nil || len(p) == 0 {
		return 0, err
	}
	p[0] = b
	return 1, nil
}

// wrong is an error at a place in the file.
func (f *xmlFile) wrong(offset int, format string, args ...any) error {
	line, column := position(f.text, offset)
	return invalid("line %d, column %d: %s", line, column, fmt.Sprintf(format, args...))
}

// next returns the next piece and where it begins; nil at the end of the file.
func (f *xmlFile) next() (xml.Token, int, error) {
	offset := int(f.decoder.InputOffset())
	if f.pieces++; f.pieces > maxPieces {
		return nil, offset, f.wrong(offset, "more than %d tags and texts", maxPieces)
	}
	f.end = min(f.at+maxPiece, len(f.text))
	piece, err := f.decoder.Token()
	syntax := new(xml.SyntaxError)
	switch {
	case err == nil:
		return piece, offset, nil
	case err == io.EOF:
		return nil, offset, nil
	case errors.Is(err, errLong):
		err = f.wrong(offset, "a tag or a text of more than %d bytes", maxPiece)
	case errors.Is(err, errEncoding):
		err = f.wrong(offset, "the file has another encoding than UTF-8; convert it")
	case errors.As(err, &syntax):
		err = f.wrong(int(f.decoder.InputOffset()), "%s", shortened(syntax.Msg))
	default:
		err = f.wrong(offset, "%s", shortened(strings.TrimPrefix(err.Error(), "xml: ")))
	}
	return nil, offset, err
}

// shortened returns a message on one line, without the middle of what it quotes where that is long.
func shortened(message string) string {
	if len(message) > 4*MaxName {
		message = message[:2*MaxName] + "…" + message[len(message)-2*MaxName:]
	}
	message = strconv.QuoteToGraphic(strings.ToValidUTF8(message, "?"))
	return strings.ReplaceAll(message[1:len(message)-1], `\"`, `"`)
}

// forms maps the root elements to what reads them.
var forms = map[string]struct {
	form
	read func(f *xmlFile, root *element) (*Topology, error)
}{
	"system":   {ncclForm, readNCCL},
	"topology": {hwlocForm, readHWLOC},
}

func readXML(text []byte) (*Topology, error) {
	if len(text) > maxXML {
		return nil, invalid("line 1, column 1: the file is longer than %d bytes, which XML may have", maxXML)
	}
	f := &xmlFile{text: text}
	f.decoder = xml.NewDecoder(f)
	f.decoder.CharsetReader = func(string, io.Reader) (io.Reader, error) { return nil, errEncoding }
	root, err := f.elements()
	if err != nil {
		return nil, err
	}
	return forms[root.name].read(f, root)
}

// elements reads all elements that the form of the root has, and returns the root.
func (f *xmlFile) elements() (root *element, err error) {
	var open []*element // nil for those that are passed over
	for {
		piece, offset, err := f.next()
		if err != nil {
			return nil, err
		}
		switch piece := piece.(type) {
		case nil:
			if root == nil {
				return nil, f.wrong(offset, "the file ends before its first element")
			}
			return root, nil
		case xml.StartElement:
			if root != nil && len(open) == 0 {
				return nil, f.wrong(offset, "a second root element <%s>", shortened(piece.Name.Local))
			}
			e, err := f.start(open, root, piece, offset)
			if err != nil {
				return nil, err
			}
			if root == nil {
				root = e
			}
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) == 0 && len(bytes.TrimSpace(piece)) > 0 {
				return nil, f.wrong(offset, "text outside of the root element")
			}
		case xml.Directive:
			// One with entities of its own has a [; those of hwloc name a file, which is not read.
			if !bytes.HasPrefix(piece, []byte("DOCTYPE")) || bytes.IndexByte(piece, '[') >= 0 {
				return nil, f.wrong(offset, "declarations inside the file are not read; remove <!%s",
					shortened(string(piece[:min(len(piece), MaxName)])))
			}
		}
	}
}

// start makes an element of its tag; nil if it is passed over.
func (f *xmlFile) start(open []*element, root *element, tag xml.StartElement, offset int) (*element, error) {
	name := tag.Name.Local
	if len(open) == maxDepth {
		return nil, f.wrong(offset, "elements inside each other, more than %d deep", maxDepth)
	}
	if len(tag.Attr) > maxAttributes {
		return nil, f.wrong(offset, "%d attributes, at most %d", len(tag.Attr), maxAttributes)
	}
	if root == nil {
		if _, known := forms[name]; !known || tag.Name.Space != "" {
			return nil, f.wrong(offset,
				"the root element is <%s>; want <system> of NCCL or <topology> of hwloc", shortened(name))
		}
		root = &element{name: name}
	}
	known, ok := forms[root.name].form[name]
	if !ok || tag.Name.Space != "" || len(open) > 0 && open[len(open)-1] == nil {
		return nil, nil
	}
	within := ""
	if len(open) > 0 {
		within = open[len(open)-1].name
	}
	if known.within[0] == "" && within != "" {
		return nil, f.wrong(offset, "<%s> within <%s>; want it around everything else", name, within)
	}
	if !slices.Contains(known.within, within) {
		return nil, f.wrong(offset, "<%s> within <%s>; want it within <%s>",
			name, within, strings.Join(known.within, "> or <"))
	}
	e := &element{name: name, offset: offset}
	for _, a := range tag.Attr {
		if a.Name.Space != "" || !slices.Contains(known.attributes, a.Name.Local) {
			continue
		}
		if slices.ContainsFunc(e.attributes, func(b xml.Attr) bool { return a.Name == b.Name }) {
			return nil, f.wrong(offset, "<%s> has a second attribute %s", name, a.Name.Local)
		}
		e.attributes = append(e.attributes, a)
	}
	if len(open) > 0 {
		above := open[len(open)-1]
		above.inside = append(above.inside, e)
	}
	return e, nil
}

// drawing is the network of an XML file that is being made.
type drawing struct {
	finding
	file   *xmlFile
	root   *element
	joined map[[2]int]bool // nodes that have a link, the lower first
	err    error           // the first
}

func newDrawing(f *xmlFile, root *element, name string) drawing {
	return drawing{
		finding: finding{Topology: &Topology{Name: Name(cmp.Or(name, "host"))}, nodes: map[string]int{}},
		file:    f, root: root, joined: map[[2]int]bool{},
	}
}

// wrong keeps an error at an element, unless there is one.
func (d *drawing) wrong(e *element, format string, args ...any) {
	if d.err == nil {
		d.err = d.file.wrong(e.offset, format, args...)
	}
}

// finish returns the network that has been made.
func (d *drawing) finish() (*Topology, error) {
	if d.err != nil {
		return nil, d.err
	}
	if _, wrong := d.problem(); wrong != "" {
		return nil, d.file.wrong(d.root.offset, "%s", wrong)
	}
	return d.Topology, nil
}

// integer returns the whole number that an attribute has, and missing where it is left out.
func (d *drawing) integer(e *element, name string, low, high, missing int64) int64 {
	text := e.get(name)
	if text == "" {
		return missing
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < low || v > high {
		d.wrong(e, "%s=%s: want a whole number, %d to %d", name, quote(text), low, high)
		return missing
	}
	return v
}

// number returns the number that an attribute has, and 0 where it is left out.
func (d *drawing) number(e *element, name, text string, high float64) float64 {
	if text == "" {
		return 0
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || v > high || math.Signbit(v) {
		d.wrong(e, "%s=%s: want a number, 0 to %v", name, quote(text), high)
		return 0
	}
	return v
}

// add adds the node of an element; its name must be new.
func (d *drawing) add(e *element, n Node) int {
	n.Name = Name(n.Name)
	at, made := d.node(n)
	if !made {
		d.wrong(e, "a second %s; names are unique", quote(n.Name))
	}
	return at
}

// rated returns the class of links of a kind with a rate, where 0 is an unknown one.
func (d *drawing) rated(kind string, rate, unknown float64) int {
	name := kind + ofUnknownRate
	if rate == 0 {
		rate = unknown
	} else {
		if rate > 1e9 { // to whole MB
			rate = math.Round(rate/1e6) * 1e6
		}
		name = kind + "-" + strings.ReplaceAll(rateName(rate), "+", "")
	}
	class := d.class(name, 0, rate)
	if class == MaxClasses {
		d.wrong(d.root, "links of more than %d different rates", MaxClasses)
		d.Classes = d.Classes[:MaxClasses]
		return 0
	}
	return class
}

// join connects two nodes, each direction with its class, unless they are connected.
func (d *drawing) join(a, b, there, back int) {
	ends := [2]int{min(a, b), max(a, b)}
	if a == b || d.joined[ends] {
		return
	}
	d.joined[ends] = true
	d.AddLink(a, b, there)
	d.AddLink(b, a, back)
}

// slotted is a device in a slot of the bus.
type slotted struct {
	node int
	wire float64 // 0 if unknown
}

// What a wire is taken to carry that the file does not tell, in bytes a second, as by NCCL.
const unknownWire = 1.25e9

// plug connects the devices of a slot with a node, directly if there is one.
func (d *drawing) plug(e *element, at, class int, slot string, devices []slotted) {
	if len(devices) > 1 {
		shared := d.add(e, Node{Name: slot, Part: Bridge})
		d.join(at, shared, class, class)
		at = shared
	}
	for _, each := range devices {
		d.join(at, each.node, class, class)
		if part := d.Nodes[each.node].Part; part == Adapter || part == Interface {
			outside, _ := d.node(Node{Name: "network", Part: Outside})
			wire := d.rated("wire", each.wire, unknownWire)
			d.join(each.node, outside, wire, wire)
		}
	}
}
