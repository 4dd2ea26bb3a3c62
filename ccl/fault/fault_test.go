package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A cause of the same class repeats neither the class nor the name of the library. A cause of
// another class, or one that names a rank, repeats both.
func TestErrorSaysItsClassOnce(t *testing.T) {
	broken := New(Invalid, "line 1 is empty")
	for _, test := range []struct {
		err  error
		want string
	}{
		{Wrap(Invalid, broken, "FILE is refused"), "goccl: invalid argument: FILE is refused: line 1 is empty"},
		{Wrap(Invalid, Wrap(Invalid, broken, ""), "FILE is refused"),
			"goccl: invalid argument: FILE is refused: line 1 is empty"},
		{Wrap(Internal, broken, "FILE"), "goccl: internal error: FILE: goccl: invalid argument: line 1 is empty"},
		{Wrap(Invalid, Peer(Invalid, 3, "late"), "FILE"),
			"goccl: invalid argument: FILE: goccl: invalid argument (rank 3): late"},
		{Wrap(System, errors.New("no such file"), "FILE"), "goccl: system error: FILE: no such file"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// The text of an error of a group ends with the code of its class, once, and each class has a page.
func TestPageOfEachClass(t *testing.T) {
	lost := Peer(PeerLost, 1, "it has ended").In(Label("world", 0, 2), "barrier, seq 1")
	for _, test := range []struct {
		err  *Error
		want string
	}{
		{lost, "goccl: group world, rank 0 of 2: barrier, seq 1: peer lost (rank 1): it has ended [goccl E4]"},
		{lost.In("x, rank 0 of 2", "send"),
			"goccl: group x, rank 0 of 2: send: peer lost (rank 1): the group failed in barrier, seq 1: it has ended [goccl E4]"},
		{Wrap(Aborted, context.Canceled, "its context ended").In("x, rank 0 of 2", "join"),
			"goccl: group x, rank 0 of 2: join: aborted: its context ended: context canceled [goccl E7]"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	for code := Invalid; code < numCodes; code++ {
		page, err := os.ReadFile(fmt.Sprintf("../../docs/errors/E%d.md", int(code)))
		if want := fmt.Sprintf("# E%d: %v\n", int(code), code); err != nil || !strings.HasPrefix(string(page), want) {
			t.Errorf("the page of %v begins with %.30q (%v), want %q", code, page, err, want)
		}
	}
}
