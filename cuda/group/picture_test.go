package group_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/cuda/group"
)

var rewrite = flag.Bool("rewrite", false, "write the pictures of docs anew")

// The pictures in docs/cuda.md are what the driver has executed of an all_reduce of two ranks.
func TestPictures(t *testing.T) {
	if *gpu {
		t.Skip("only the simulated driver tells what it executes")
	}
	for _, p := range []struct{ route, file, title, facts string }{
		{"windows", "cuda-all-reduce.svg", "all_reduce over windows, two ranks that share a GPU",
			"What the streams execute, from top to bottom. The processors only enqueue it."},
		{"staged", "cuda-all-reduce-staged.svg", "all_reduce by the staged route, two ranks",
			"What streams and processors execute, from top to bottom."},
	} {
		t.Run(p.route, func(t *testing.T) {
			t.Parallel()
			have := draw(p.title, p.facts, p.route, traced(t, p.route))
			path := filepath.Join("..", "..", "docs", p.file)
			if *rewrite {
				require.NoError(t, os.WriteFile(path, []byte(have), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err, "go test ./cuda/group -run Pictures -rewrite writes it")
			require.Equal(t, string(want), have, "go test ./cuda/group -run Pictures -rewrite writes it anew")
		})
	}
}

// The lanes of a rank.
const (
	laneCaller = iota
	laneGroup  // or the stream to the host
	laneDevice // the stream to the device
	laneProcessor
	lanes
)

// The memory of a rank.
const (
	columnTensor = iota
	columnBuffer // the window, or a slot in memory of the host
	columnWords
	columns
)

// step is something that a lane does.
type step struct {
	rank, lane int
	name       string // as the driver calls it, "stream 3 of context 0, operation 5"
	text       string
	reads      []place
	writes     []place
	word       *word
	event      *step   // that it waits for
	with       bool    // the processors of both ranks do it together
	after      []*step // that come before it, in whatever lanes
	row        int
}

// place is a column of a rank.
type place struct{ rank, column int }

// word is a word that a step writes or waits for.
type word struct {
	page   int // the rank whose it is
	at     string
	value  uint64
	wait   bool
	writer *step // of what is waited for
}

// traced returns what two ranks do for an all_reduce, and what they do before and behind it, in the
// order of each stream.
func traced(t *testing.T, route string) []*step {
	const count = 1000
	var noting atomic.Bool
	var lines []string
	device := cudatest.Options{Trace: func(line string) {
		if noting.Load() {
			lines = append(lines, line)
		}
	}}
	w := machine(t, 2, device, ccl.GroupOptions{CudaBuffSize: 256 << 10, CudaRoute: route}, memory)
	noting.Store(true)
	var works []*ccl.DeviceWork
	for i, r := range w {
		r.put(t, 0, random(uint64(i), 4*count))
		work, err := r.Enqueue(r.reduce(count), r.stream)
		require.NoError(t, err)
		require.NoError(t, work.Join(r.stream))
		r.fetch(t, 0, 4*count)
		works = append(works, work)
	}
	for i, r := range w {
		r.get(t, 0, 4*count)
		works[i].Free()
	}
	w[0].driver.Settle()
	noting.Store(false)
	end(t, w)
	return (&reader{t: t, route: route}).read(lines)
}

var (
	lineText = regexp.MustCompile(`^(stream (\d+) of context (\d+), operation \d+): (.*)$`)
	areaText = regexp.MustCompile(`allocation (\d+) bytes (\d+)\.\.`)
	waitText = regexp.MustCompile(`^wait for event \d+ \(recorded in (.*)\)$`)
	wordText = regexp.MustCompile(`^words: (write|wait for) (\d+) (?:to|in) allocation (\d+) bytes (\d+)\.\.`)
)

// reader makes steps of the lines of a trace.
type reader struct {
	t       *testing.T
	route   string
	callers [2]string        // streams
	others  [2][]string      // streams of the group, as they were made
	places  map[string]place // of allocations
	pages   map[string]int   // by allocation
	steps   []*step
	named   map[string]*step
	waited  map[*step]bool // for the event that it records
}

func (r *reader) read(lines []string) []*step {
	r.places, r.pages = map[string]place{}, map[string]int{}
	r.named, r.waited = map[string]*step{}, map[*step]bool{}
	var texts []string
	for _, line := range lines {
		m := lineText.FindStringSubmatch(line)
		require.NotNil(r.t, m, line)
		rank, err := strconv.Atoi(m[3])
		require.NoError(r.t, err)
		s := &step{rank: rank, name: m[1]}
		if r.callers[rank] == "" { // the first step of all is the caller's, who writes the tensor
			r.callers[rank] = m[2]
			to := areaText.FindStringSubmatch(m[4])
			r.places[to[1]] = place{rank, columnTensor}
		}
		if m[2] != r.callers[rank] && !slices.Contains(r.others[rank], m[2]) {
			r.others[rank] = append(r.others[rank], m[2])
		}
		s.lane = -1
		r.steps, texts, r.named[s.name] = append(r.steps, s), append(texts, m[2]+" "+m[4]), s
	}
	for rank := range r.others {
		slices.SortFunc(r.others[rank], func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		require.LessOrEqual(r.t, len(r.others[rank]), 2)
	}
	for i, s := range r.steps {
		stream, what, _ := strings.Cut(texts[i], " ")
		s.lane = laneGroup + slices.Index(r.others[s.rank], stream)
		if stream == r.callers[s.rank] {
			s.lane = laneCaller
		}
		r.one(s, what)
	}
	r.connect()
	return r.steps
}

// one finds out what a step of a stream does.
func (r *reader) one(s *step, what string) {
	if m := waitText.FindStringSubmatch(what); m != nil {
		s.text, s.event = "wait for the event", r.named[m[1]]
		require.NotNil(r.t, s.event, what)
		s.after, r.waited[s.event] = append(s.after, s.event), true
		return
	}
	if m := wordText.FindStringSubmatch(what); m != nil {
		value, err := strconv.ParseUint(m[2], 10, 64)
		require.NoError(r.t, err)
		s.word = &word{at: m[3] + " " + m[4], value: value, wait: m[1] == "wait for"}
		if s.word.wait {
			r.pages[m[3]] = s.rank
		}
		s.text = r.nameOf(s.word)
		return
	}
	kind, _, _ := strings.Cut(what, " ")
	areas := areaText.FindAllStringSubmatch(what, -1)
	for i := range areas {
		if i == 0 && kind == "copy" && s.lane != laneCaller {
			if _, known := r.places[areas[0][1]]; !known {
				r.places[areas[0][1]] = place{s.rank, columnBuffer}
			}
		}
		p, known := r.places[areas[i][1]]
		switch {
		case !known:
			require.Equal(r.t, laneCaller, s.lane, what)
		case i == 0:
			s.writes = append(s.writes, p)
		default:
			s.reads = append(s.reads, p)
		}
	}
	switch {
	case kind == "record":
		s.text = "record an event"
	case s.lane == laneCaller && len(s.writes) > 0:
		s.text = "write the tensor"
	case s.lane == laneCaller:
		s.text = "read the tensor"
	case kind == "copy":
		s.text = fmt.Sprintf("copy: %s = %s", r.column(s.writes[0]), r.column(s.reads[0]))
	case strings.HasPrefix(kind, "goccl_reduce_sum"):
		s.text = fmt.Sprintf("kernel: %s + %s", r.column(s.reads[0]), r.column(s.reads[1]))
	default:
		require.Fail(r.t, "nobody knows how to draw it", what)
	}
}

func (r *reader) column(p place) string { return fmt.Sprint(r.columnNames()[p.column], " ", p.rank) }

func (r *reader) columnNames() []string {
	if r.route == "staged" {
		return []string{"tensor", "slot", "words"}
	}
	return []string{"tensor", "window", "words"}
}

// nameOf returns what is done with a word.
func (r *reader) nameOf(w *word) string {
	verb := "write"
	if w.wait {
		verb = "wait for"
	}
	name, position := "there", fmt.Sprint("piece ", w.value)
	if r.route != "staged" {
		offset, err := strconv.Atoi(strings.Fields(w.at)[1])
		require.NoError(r.t, err)
		name, position = group.NameOfWord(2, offset, w.value)
	} else if w.wait {
		name = "done"
	}
	return fmt.Sprintf("%s %s: %s", verb, name, position)
}

// connect finds who writes what is waited for. What no stream writes, the processor does.
func (r *reader) connect() {
	for _, s := range slices.Clone(r.steps) {
		if s.word == nil {
			continue
		}
		allocation, _, _ := strings.Cut(s.word.at, " ")
		page, known := r.pages[allocation]
		require.True(r.t, known, s.text)
		s.word.page = page
		if !s.word.wait {
			continue
		}
		i := slices.IndexFunc(r.steps, func(w *step) bool {
			return w.word != nil && !w.word.wait && w.word.at == s.word.at && w.word.value >= s.word.value
		})
		if i >= 0 {
			s.word.writer = r.steps[i]
		} else {
			s.word.writer = r.processor(s)
		}
		s.after = append(s.after, s.word.writer)
	}
	for _, s := range r.steps {
		if s.text == "record an event" && !r.waited[s] {
			s.text = "record an event for later"
		}
	}
}

// processor adds what the processor does before it writes a word: it waits for the word that a
// stream of the rank has written, and runs the piece.
func (r *reader) processor(s *step) *step {
	require.Equal(r.t, "staged", r.route, "over windows streams write all that streams wait for")
	i := slices.IndexFunc(r.steps, func(w *step) bool { return w.rank == s.rank && w.word != nil && !w.word.wait })
	there := r.steps[i]
	slot := place{s.rank, columnBuffer}
	add := func(more step) *step {
		more.rank, more.lane = s.rank, laneProcessor
		r.steps = append(r.steps, &more)
		return &more
	}
	sees := add(step{text: strings.Replace(there.text, "write", "wait for", 1), after: []*step{there},
		word: &word{page: s.rank, at: there.word.at, value: there.word.value, wait: true, writer: there}})
	runs := add(step{text: "plan: slot 0 + slot 1", with: true, after: []*step{sees},
		reads: []place{slot}, writes: []place{slot}})
	return add(step{text: strings.Replace(s.text, "wait for", "write", 1), after: []*step{runs},
		word: &word{page: s.rank, at: s.word.at, value: s.word.value}})
}
