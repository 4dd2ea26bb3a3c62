package fault

import (
	"errors"
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
