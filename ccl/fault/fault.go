// Package fault defines the one error type of the library. An error records the class of the
// failure, the operation and the peer.
//
// errors.Is matches a class (errors.Is(err, fault.Timeout)); errors.As returns the *Error.
package fault

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Code is the class of a failure. It is an error itself, so that errors.Is can match it. The
// numbers are part of the C ABI.
type Code int

const (
	OK           Code = iota
	Invalid           // an invalid argument, option or environment value
	NotSupported      // a valid request that is not supported here: dtype and operator, device, platform
	Timeout           // a deadline passed
	PeerLost          // a peer process died or broke its connection
	PeerLeft          // a peer closed its group while this rank still needed it
	Mismatch          // ranks made different calls
	Aborted           // the group was aborted on this side
	Closed            // used after close
	Forked            // used in a forked child
	System            // the operating system refused a request
	Internal          // a broken invariant of this library
	numCodes
)

var names = [numCodes]string{"ok", "invalid argument", "not supported", "timeout", "peer lost", "peer left", "mismatch",
	"aborted", "closed", "forked", "system error", "internal error"}

func (c Code) Error() string {
	if c < 0 || c >= numCodes {
		return fmt.Sprintf("code %d", int(c))
	}
	return names[c]
}

// NoPeer is the Peer of an error that no single rank caused.
const NoPeer = -1

// Error is a failure with its circumstances. Zero or negative fields are unknown and are not
// printed.
type Error struct {
	Code   Code
	Op     string // "all_reduce of 1048576 x f32 (sum), seq 17"
	Seq    uint64 // of a collective that has ended its group: its number; 0 otherwise
	Group  string // as Label formats it
	Peer   int    // rank within the group, or NoPeer
	Ranks  []int  // where several ranks caused it: all of them, Peer first
	Text   string // what happened and what to do
	Cause  error
	Silent bool // of a peer that is lost: its host, or the path to it, does not answer
	// Refused is set where the system does not let two processes share memory: their group can do
	// without it.
	Refused bool
	Seen    bool   // of a peer that is lost: whoever says so has seen how its process ended
	Dead    bool   // of a peer that is lost: its process has ended, or nothing of this host listens for it
	Proof   []byte // of a mismatch: what a rank that hears the report compares with its own calls
	Left    []byte // of a link whose peer has left: what the peer said when it did (transport.Link.Leave)
}

// Culprits returns the ranks that caused the failure.
func (e *Error) Culprits() []int {
	switch {
	case len(e.Ranks) > 0:
		return e.Ranks
	case e.Peer >= 0:
		return []int{e.Peer}
	}
	return nil
}

// New makes an error of a class without a peer.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Peer: NoPeer, Text: fmt.Sprintf(format, args...)}
}

// Peer makes an error that names a rank.
func Peer(code Code, peer int, format string, args ...any) *Error {
	return &Error{Code: code, Peer: peer, Text: fmt.Sprintf(format, args...)}
}

// Wrap makes an error of a class around its cause.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Peer: NoPeer, Text: fmt.Sprintf(format, args...), Cause: cause}
}

// Unended makes the error of a wait that has ended before its operation, which goes on.
func Unended() *Error {
	return New(Timeout, "the time of this wait is over, and the operation has not ended. It goes on, also on the other "+
		"ranks: wait for it again, or ask now and then whether it has ended; only the timeout of the operation, or of "+
		"the group, ends it")
}

// Label formats the name of a group and the rank in it that reports an error. Messages of several
// ranks are often read together.
func Label(name string, rank, size int) string {
	return fmt.Sprintf("%s, rank %d of %d", cmp.Or(name, "(unnamed)"), rank, size)
}

// NewcomerLabel is Label for a process that has no rank in the group yet.
func NewcomerLabel(name string) string { return cmp.Or(name, "(unnamed)") + ", a newcomer" }

// In returns e as the error that ends operation op of a group. If e ended another operation of the
// group first, the text names that operation.
func (e *Error) In(group, op string) *Error {
	in := *e
	in.Group, in.Op = group, op
	if e.Op != "" && e.Op != op {
		in.Text = "the group failed in " + e.Op
		if e.Text != "" {
			in.Text += ": " + e.Text
		}
	}
	return &in
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(name)
	if e.Group != "" {
		fmt.Fprintf(&b, "group %s: ", e.Group)
	}
	if e.Op != "" {
		fmt.Fprintf(&b, "%s: ", e.Op)
	}
	b.WriteString(e.Code.Error())
	switch ranks := e.Culprits(); len(ranks) {
	case 0:
	case 1:
		fmt.Fprintf(&b, " (rank %d)", ranks[0])
	default:
		b.WriteString(" (ranks ")
		for i, rank := range ranks {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(strconv.Itoa(rank))
		}
		b.WriteString(")")
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	if e.Cause != nil {
		// Print the class once, and its code.
		cause := strings.TrimPrefix(e.Cause.Error(), name+e.Code.Error()+": ")
		b.WriteString(": " + strings.TrimSuffix(cause, e.Code.mark()))
	}
	if e.Group != "" {
		b.WriteString(e.Code.mark())
	}
	return b.String()
}

// mark is what the text of an error of a group ends with: the page of that name in docs/errors says
// what it may be, and what to do.
func (c Code) mark() string { return fmt.Sprintf(" [goccl E%d]", int(c)) }

// name is what the texts of errors begin with.
const name = "goccl: "

// Text returns what an error says, without the name of the library in front.
func Text(err error) string { return strings.TrimPrefix(err.Error(), name) }

// Bare is Text without the group and the operation, where these are said already.
func (e *Error) Bare() string {
	what := *e
	what.Op, what.Group = "", ""
	return Text(&what)
}

// Is matches the class of e.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

func (e *Error) Unwrap() error { return e.Cause }
