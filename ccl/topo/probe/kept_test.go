package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

func TestKeptRates(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	first := KeptRates(folder)
	require.True(t, first.Rates.Known())
	require.WithinDuration(t, time.Now(), first.Measured, time.Minute)
	first.Load = 0
	require.NoError(t, first.keep(here().path(folder)))
	second := KeptRates(folder)
	require.Equal(t, first.Rates, second.Rates, "nobody measures again")
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 1)

	less := owner{here().machine, here().cores + 1}
	require.True(t, less.measure(folder).Rates.Known())
	files, err = os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 2, "another part of the machine")

	nowhere := filepath.Join(folder, files[0].Name(), "no folder")
	require.True(t, KeptRates(nowhere).Rates.Known())
}

// wrongFiles are those that nobody has written as a whole, or for this version.
var wrongFiles = []string{"", "{", `{"goccl_rates":1,"rates":{"one_core":2e9,"all_co`,
	`{"goccl_rates":2,"rates":{"one_core":1e9,"all_cores":1e9}}`,
	`{"goccl_rates":1,"rates":{"one_core":-1,"all_cores":1}}`, `{"goccl_rates":1,"rates":{"one_core":2,"all_cores":1}}`,
	`{"goccl_rates":1,"rates":{"one_core":2,"all_cores":2,"handover":-1}}`, strings.Repeat("[", 1<<20)}

// What is wrong with a file, or with its folder, keeps nobody from joining.
func TestJoiningWithWrongFiles(t *testing.T) {
	o := here()
	for _, text := range wrongFiles {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(o.path(folder), []byte(text), 0o600))
		_, ok := o.read(folder)
		require.False(t, ok, "%.80s", text)
		require.NotNil(t, settled(o, folder, nil), "%.80s", text)
	}
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(o.path(folder), 0o700)) // and so nothing can be kept
	require.Nil(t, o.join(folder))
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Nil(t, o.join(filepath.Join(file, "below")))
	begun := time.Now()
	require.Nil(t, o.join("/proc/no/folder"))
	require.Less(t, time.Since(begun), 20*time.Millisecond, "it does not measure what it cannot keep")
}

// settled joins until other rates than some old ones are kept: the machine may be too busy to
// measure in time.
func settled(o owner, folder string, old *topo.Rates) *topo.Rates {
	for range 500 {
		if r := o.join(folder); r != nil && (old == nil || *r != *old) {
			return r
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// Who joins while another one measures says nothing, or what was kept before; so does who joins
// when a measurement has not ended, for a minute.
func TestJoiningBesideOthers(t *testing.T) {
	o, folder := here(), t.TempDir()
	unlock, err := lock(o.path(folder))
	require.NoError(t, err)
	require.Nil(t, o.join(folder))
	old := Kept{Format: keptFormat, Measured: time.Now().Add(-2 * keptFor), Rates: topo.Rates{One: 1e9, All: 2e9}}
	require.NoError(t, old.keep(o.path(folder)))
	require.Equal(t, &old.Rates, o.join(folder))
	unlock()
	require.NotNil(t, settled(o, folder, &old.Rates), "it is old, and measured again")

	begun := Kept{Format: keptFormat, Measured: time.Now().Add(retryAfter - keptFor)}
	require.NoError(t, begun.keep(o.path(folder)))
	require.Nil(t, o.join(folder))
	begun.Measured = begun.Measured.Add(-2 * retryAfter)
	require.NoError(t, begun.keep(o.path(folder)))
	require.NotNil(t, settled(o, folder, nil))

	long := time.Now().Add(-2 * keptFor)
	require.NoError(t, os.Chtimes(o.path(folder)+".lock", long, long))
	require.NoError(t, begun.keep(o.path(folder)))
	require.NoFileExists(t, o.path(folder)+".lock")
}

func TestStale(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		age           time.Duration
		then, load    float64
		cores         int
		want          bool
		whatIsItAbout string
	}{
		{time.Hour, 0.1, 0, 2, false, "fresh"},
		{keptFor + time.Hour, 0.1, 0, 2, true, "old"},
		{-time.Hour, 0.1, 0, 2, true, "from the future"},
		{time.Hour, 2, 1.5, 2, false, "loaded, as it is still"},
		{time.Hour, 2, 0.9, 2, true, "loaded, and no longer"},
		{time.Hour, 2, 0, 64, false, "of 64 cores two were busy"},
	} {
		k := Kept{Measured: now.Add(-test.age), Load: test.then}
		require.Equal(t, test.want, k.stale(now, test.load, test.cores), test.whatIsItAbout)
	}
}

// TestManyJoinAtOnce has processes join at the same time: one measures, nobody waits for long, and
// later all say the same.
func TestManyJoinAtOnce(t *testing.T) {
	if folder := os.Getenv("GOCCL_TEST_RATES"); folder != "" {
		begun := time.Now()
		r := here().join(folder)
		fmt.Printf("joined %v %v\n", r != nil, time.Since(begun))
		if settled(here(), folder, nil) == nil { // who measures must not end before
			t.Error("nobody has measured")
		}
		return
	}
	folder := t.TempDir()
	const processes = 8
	var group sync.WaitGroup
	out := make([]bytes.Buffer, processes)
	for i := range out {
		group.Go(func() {
			c := exec.Command(os.Args[0], "-test.run=^TestManyJoinAtOnce$")
			c.Env = append(os.Environ(), "GOCCL_TEST_RATES="+folder)
			c.Stdout = &out[i]
			if err := c.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i := range out {
		var knows bool
		var took string
		_, err := fmt.Sscanf(out[i].String(), "joined %t %s", &knows, &took)
		require.NoError(t, err, out[i].String())
		span, err := time.ParseDuration(took)
		require.NoError(t, err)
		require.Less(t, span, 2*time.Second) // 50 ms, where nothing else runs
	}
	r := settled(here(), folder, nil)
	require.NotNil(t, r)
	files, err := filepath.Glob(folder + "/*")
	require.NoError(t, err)
	require.Len(t, files, 2, "the rates and the lock")
	text, err := os.ReadFile(here().path(folder))
	require.NoError(t, err)
	var k Kept
	require.NoError(t, json.Unmarshal(text, &k))
	require.True(t, k.Rates.Known())
}

// A process keeps what it knows, and one that does not know asks again.
func TestJoiningRates(t *testing.T) {
	o, folder := here(), t.TempDir()
	unlock, err := lock(o.path(folder))
	require.NoError(t, err)
	require.Nil(t, JoiningRates(folder))
	unlock()
	settled(o, folder, nil)
	r := JoiningRates(folder)
	require.NotNil(t, r)
	require.NoError(t, os.RemoveAll(folder))
	require.Same(t, r, JoiningRates(folder))
}

func BenchmarkJoiningAgain(b *testing.B) {
	folder := b.TempDir()
	require.NotNil(b, settled(here(), folder, nil))
	for b.Loop() {
		here().join(folder)
	}
}

func BenchmarkJoiningFirst(b *testing.B) {
	root := b.TempDir()
	runtime.GC()
	for n := 0; b.Loop(); n++ {
		here().join(filepath.Join(root, fmt.Sprint(n)))
	}
}
