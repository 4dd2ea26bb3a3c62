package verify

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/plan"
)

// TestHostilePlans verifies short files that describe a lot of work. Each is refused by a count, in
// a short text that says which number is too large, or is wrong.
func TestHostilePlans(t *testing.T) {
	everyRank := func(n int, program func(r int) string) string {
		var b strings.Builder
		for r := range n {
			fmt.Fprintf(&b, "rank %d\n%s", r, program(r))
		}
		return b.String()
	}
	const head = "goccl plan format 2\nplan x all_reduce "
	for _, test := range []struct{ name, text, says string }{
		{"steps", head + "ranks=16 needs=messages\n" + everyRank(16, func(int) string {
			return "  lane 0\n    loop 1048576\n      copy out[0] = in[0]\n"
		}), "1048576 steps of ranks 0 to 0, loops unrolled"},
		{"blocks", head + "ranks=64 split=131072 needs=messages\n" + everyRank(64, func(int) string {
			return "  lane 0\n    copy out[0:131072] = in[0:131072]\n"
		}), "524288 chunks of in, out, tmp and win of ranks 0 to 1"},
		{"sources", head + "ranks=2 win=65536 needs=gets\n" + everyRank(2, func(r int) string {
			return "  win 0/0*65536\n  lane 0\n    getreduce out[0] = in[0]" +
				strings.Repeat(fmt.Sprintf(" + win[0]@%d", 1-r), 200_000) + "\n"
		}), "the file lists more than 262144 steps, operands and lengths"},
		{"fewer sources", head + "ranks=2 win=65536 needs=gets\n" + everyRank(2, func(r int) string {
			return "  win 0/0*65536\n  lane 0\n    getreduce out[0] = in[0]" +
				strings.Repeat(fmt.Sprintf(" + win[0]@%d", 1-r), 50_000) + "\n"
		}), "bytes are left out"},
		{"repeated sources", head + "ranks=2 needs=messages\n" + everyRank(2, func(int) string {
			return "  lane 0\n    loop 1000\n      reduce out[0] = in[0]" + strings.Repeat(" + in[0]", 5000) + "\n"
		}), "operands of the steps of ranks 0 to 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hostile")
			require.NoError(t, os.WriteFile(path, []byte(test.text), 0o600))
			err := file(path, ccl.DefaultDeterminism, io.Discard)
			require.ErrorContains(t, err, test.says)
			require.Less(t, len(err.Error()), 2048)
			if strings.Contains(err.Error(), "too large to verify") {
				require.ErrorContains(t, err, "GOCCL_VERIFY=always allows more")
			}
		})
	}
}

// TestLargePlansOfTheCatalogue verifies, as files, the plans for 64 ranks that cost most.
func TestLargePlansOfTheCatalogue(t *testing.T) {
	for _, name := range []string{"all_reduce/segmented_ring", "all_reduce/bidirectional_ring",
		"all_reduce/two_shot_window", "all_to_all/bruck"} {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "plan")
			require.NoError(t, cli.Execute(cli.Root(plan.Command()),
				[]string{"plan", "export", name, "--ranks", "64", "-o", path}, io.Discard))
			require.NoError(t, file(path, 0, io.Discard))
		})
	}
}
