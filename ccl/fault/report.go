package fault

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxReport is the length of the longest report.
const MaxReport = 1024

// Most ranks that a report lists, and most bytes of its texts. A text that is cut ends in "…".
const (
	mostRanks     = 32
	mostText      = 384
	mostOperation = 96
	mostProof     = 192
)

// report is what a rank that leaves a group because of an error tells the others. They fail with
// the same error, and pass the report on unchanged.
type report struct {
	Code  Code   `json:"code"`
	Ranks []int  `json:"ranks"`          // who caused it
	From  int    `json:"from"`           // who found it
	Op    string `json:"op,omitempty"`   // what that rank was doing
	Seq   uint64 `json:"seq,omitempty"`  // of the collective that it was in: those before have ended there
	Text  string `json:"text,omitempty"` // the evidence
	Proof []byte `json:"proof,omitempty"`

	Refused bool `json:"refused,omitempty"`
	Seen    bool `json:"seen,omitempty"`
}

// Report returns the report of an error that a rank has found: at most MaxReport bytes. An error
// that names no rank was caused by this rank itself.
func (e *Error) Report(from int) []byte {
	r := report{Code: e.Code, Ranks: e.Culprits(), From: from, Op: cut(e.Op, mostOperation), Seq: e.Seq, Text: e.Text,
		Refused: e.Refused, Seen: e.Seen}
	if len(e.Proof) <= mostProof {
		r.Proof = e.Proof
	}
	if len(r.Ranks) == 0 {
		r.Ranks = []int{from}
	}
	if e.Cause != nil {
		r.Text = strings.TrimPrefix(r.Text+": "+e.Cause.Error(), ": ")
	}
	r.Ranks = r.Ranks[:min(len(r.Ranks), mostRanks)]
	for most := mostText; ; most /= 2 { // some characters take several bytes in JSON
		r.Text = cut(r.Text, most)
		if text, _ := json.Marshal(r); len(text) <= MaxReport {
			return text
		}
	}
}

// Parting returns what a rank tells the others that leaves its group in order, after a message of
// its has failed with e: a report that it has left, and not one for which they fail.
func (e *Error) Parting(from int) []byte {
	left := Error{Code: PeerLeft, Peer: from, Op: e.Op, Text: e.Bare()}
	return left.Report(from)
}

// Parted reports whether that is what a rank has said when it left.
func Parted(said []byte) bool {
	var r report
	return len(said) <= MaxReport && json.Unmarshal(said, &r) == nil && r.Code == PeerLeft &&
		len(r.Ranks) == 1 && r.Ranks[0] == r.From
}

// cut shortens a text to at most n bytes, and removes what is not to be printed.
func cut(text string, n int) string {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
	if len(text) <= n {
		return text
	}
	n -= len("…")
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// ParseReport returns the error that a report describes, as rank self of a group of this many
// ranks is to see it. The text is a peer's: an error means that it is no report.
func ParseReport(text []byte, self, ranks int) (*Error, error) {
	var r report
	if len(text) > MaxReport {
		return nil, New(Internal, "a report of %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, Wrap(Internal, err, "a report that cannot be read")
	}
	outside := func(rank int) bool { return rank < 0 || rank >= ranks }
	if r.Code <= OK || r.Code >= numCodes || len(r.Ranks) == 0 || len(r.Ranks) > mostRanks ||
		outside(r.From) || slices.ContainsFunc(r.Ranks, outside) {
		return nil, New(Internal, "a report of code %d, by rank %d, of ranks %v", int(r.Code), r.From, r.Ranks)
	}
	if r.Code == PeerLost && slices.Contains(r.Ranks, self) {
		r.Ranks = []int{r.From} // this rank is alive: the path between the two is broken
	}
	slices.Sort(r.Ranks)
	evidence, op := cut(r.Text, mostText), cut(r.Op, mostOperation)
	said := "rank " + strconv.Itoa(r.From) + " reports"
	if op != "" {
		said += ", in " + op
	}
	e := &Error{Code: r.Code, Ranks: slices.Compact(r.Ranks), Proof: r.Proof, Seq: r.Seq,
		Refused: r.Refused && r.Code == NotSupported, Seen: r.Seen && r.Code == PeerLost,
		Text: strings.TrimSuffix(said+": "+evidence, ": ")}
	e.Peer = e.Ranks[0]
	return e, nil
}
