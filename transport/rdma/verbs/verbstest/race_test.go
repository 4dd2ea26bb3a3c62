//go:build race

package verbstest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// early names what the child of TestDetector does too early.
const early = "GOCCL_VERBSTEST_EARLY"

// TestDetector: the race detector finds who accesses memory before the completion, whatever calls
// come between. A process that does so ends with its report.
func TestDetector(t *testing.T) {
	if what := os.Getenv(early); what != "" {
		tooEarly(t, what)
		return
	}
	for _, what := range []string{"read", "write"} {
		child := exec.Command(os.Args[0], "-test.run=^TestDetector$")
		child.Env = append(os.Environ(), early+"="+what)
		output, err := child.CombinedOutput()
		require.Error(t, err, "%s: %s", what, output)
		require.Contains(t, string(output), "WARNING: DATA RACE", what)
		require.Contains(t, string(output), "verbstest.copyPart", what)
	}
}

// tooEarly reads what a peer has written, or writes to what is to be read.
func tooEarly(t *testing.T, what string) {
	_, b := two(t, Options{Seed: 1})
	pa, pb := b.connected()
	b.b.receive(1)
	b.a.post(pa, b.a.tell(b.b, 0, 1000, 1))
	for i := range 5 {
		time.Sleep(time.Millisecond)
		for _, e := range []*end{b.a, b.b} {
			e.receive(1)
			_, _, err := e.c.Event()
			e.must(err)
		}
		b.b.post(pb, b.b.write(b.a, 2000, 1))
		b.a.post(pa, b.a.write(b.b, 3000, 1))
		if what == "write" {
			b.a.memory[10] = byte(i)
		} else if b.b.memory[10] != 0 {
			t.Error("nobody has written anything")
		}
	}
	b.a.poll(6)
	b.b.poll(6)
}
