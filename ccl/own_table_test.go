package ccl_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// tableFile writes a table of these rows to a file.
func tableFile(t *testing.T, rows ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.table")
	if err := os.WriteFile(file, []byte("goccl tune table 2\n"+strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOwnTable detects from the last bits which algorithm has run: the sum of these numbers is 0
// from left to right. A ring begins at another rank for each chunk, and where that is rank 1 the
// sum is 1.
func TestOwnTable(t *testing.T) {
	x := [3]float32{1, 1 << 30, -1 << 30}
	ringed := func(opts ccl.GroupOptions, count int) bool {
		var result [3][]float32
		run(3, opts, func(ctx context.Context, c *ccl.Communicator) error {
			in := make([]float32, count)
			for i := range in {
				in[i] = x[c.Rank()]
			}
			err := ccl.AllReduce(ctx, c, in, in, ccl.Sum)
			result[c.Rank()] = in
			return err
		})
		if !slices.Equal(result[0], result[1]) || !slices.Equal(result[0], result[2]) {
			t.Errorf("ranks have %v", result)
		}
		return slices.Contains(result[0], 1)
	}
	ring := tableFile(t, "all_reduce 3 any any 1K direct", "all_reduce 3 any any 2K ring",
		"all_reduce 3 any any any direct", "broadcast 2+ any any any flat")
	for _, test := range []struct {
		name  string
		opts  ccl.GroupOptions
		count int
		want  bool
	}{
		{"the row before", ccl.GroupOptions{Tune: ring}, 256, false},
		{"the row", ccl.GroupOptions{Tune: ring}, 257, true},
		{"the end of the row", ccl.GroupOptions{Tune: ring}, 512, true},
		{"behind it", ccl.GroupOptions{Tune: ring}, 513, false},
		{"the user's choice wins", ccl.GroupOptions{Tune: ring, Algo: "all_reduce=direct"}, 300, false},
		{"a ring is not in the order of ranks", ccl.GroupOptions{Tune: ring, Determinism: 3}, 300, false},
		{"a row for other groups", ccl.GroupOptions{Tune: tableFile(t, "all_reduce 4+ any any any ring",
			"all_reduce 3 any 2+ any ring", "all_reduce 3 any any any direct")}, 300, false},
		{"a row for ranks of one process", ccl.GroupOptions{Tune: tableFile(t, "all_reduce 3 any 1 any ring")},
			300, true},
	} {
		if got := ringed(test.opts, test.count); got != test.want {
			t.Errorf("%s: ring %v, want %v", test.name, got, test.want)
		}
	}
}

func TestOwnTableRefused(t *testing.T) {
	for _, test := range []struct {
		name, file string
		want       []string
	}{
		{"no file", filepath.Join(t.TempDir(), "nowhere"), []string{"GOCCL_TUNE", "nowhere"}},
		{"a folder", t.TempDir(), []string{"GOCCL_TUNE", "want a file of at most"}},
		{"a wrong row", tableFile(t, "all_reduce 3 any any any rings"),
			[]string{"own.table is refused", "table:2:26:", `algorithm "rings": unknown; all_reduce has direct`}},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, _, err := ccl.Local(ctx, 2, ccl.GroupOptions{Tune: test.file})
		cancel()
		if !errors.Is(err, fault.Invalid) {
			t.Fatalf("%s: got %v", test.name, err)
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", test.name, err, want)
			}
		}
	}
}

// Ranks compare the rows, not the names of the files or the comments.
func TestOwnTableAgreed(t *testing.T) {
	row := "all_reduce 2 any any any direct"
	join := func(files ...string) error {
		node, err := ccl.NewNode(ccl.NodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var endpoints []*ccl.Endpoint
		var addresses [][]byte
		for rank, file := range files {
			e, err := node.Open(ccl.Config{Name: "tables", Rank: rank, Size: len(files),
				Options: ccl.GroupOptions{Tune: file}})
			if err != nil {
				t.Fatal(err)
			}
			endpoints, addresses = append(endpoints, e), append(addresses, e.Address())
		}
		errs := make(chan error, len(files))
		for _, e := range endpoints {
			go func() { _, err := e.Join(ctx, addresses); errs <- err }()
		}
		var first error
		for range endpoints {
			if err := <-errs; first == nil {
				first = err
			}
		}
		return first
	}
	one, same := tableFile(t, row), tableFile(t, "# measured elsewhere", "  "+row+" # 7 µs")
	if err := join(one, same); err != nil {
		t.Errorf("the same rows: %v", err)
	}
	for _, other := range []string{
		"", tableFile(t, "all_reduce 2 any any any ring"), tableFile(t, "all_reduce 2 any any 1K direct"),
	} {
		if err := join(one, other); !errors.Is(err, fault.Mismatch) ||
			!strings.Contains(err.Error(), "trials, or rows, of GOCCL_TUNE") {
			t.Errorf("other rows: %v", err)
		}
	}
}
