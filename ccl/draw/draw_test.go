package draw_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
)

// wellFormed parses a picture and counts its elements.
func wellFormed(t *testing.T, text string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return count
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
}

// TestCatalogue checks that the results of every algorithm are complete, and that its picture is
// the same each time.
func TestCatalogue(t *testing.T) {
	for _, a := range algo.All() {
		for _, ranks := range []int{1, 2, 3, 4, 5, 8} {
			p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks, Root: 0})
			require.NoError(t, err)
			trace, err := draw.Run(p)
			require.NoError(t, err, "%s %v", a.Name, p.Spec)
			for r, out := range trace.Out {
				for i, v := range out {
					require.NotNil(t, v.Sum, "%s %v: out[%d] of rank %d", a.Name, p.Spec, i, r)
					terms := v.Sum.Terms()
					slices.Sort(terms)
					require.Len(t, slices.Compact(terms), trace.Contributors(),
						"%s %v: out[%d] of rank %d", a.Name, p.Spec, i, r)
				}
			}
			text, err := draw.SVG(p, draw.Options{})
			require.NoError(t, err)
			again, err := draw.SVG(p, draw.Options{})
			require.NoError(t, err)
			require.Equal(t, text, again)
			count := wellFormed(t, text)
			require.Equal(t, 1, count["desc"])
			require.NotContains(t, text, "href")
		}
	}
}

func ring(t *testing.T, ranks int) *plan.Plan {
	t.Helper()
	a, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
	require.NoError(t, err)
	return p
}

func TestRing(t *testing.T) {
	trace, err := draw.Run(ring(t, 5))
	require.NoError(t, err)
	require.Equal(t, 8, trace.Rounds)
	require.Equal(t, []int{8, 8, 8, 8, 8}, trace.Sent)
	rounds := make([]int, 9)
	for _, m := range trace.Moves {
		rounds[m.Round]++
		require.Equal(t, m.Round <= 4, m.Reduces)
	}
	require.Equal(t, []int{0, 5, 5, 5, 5, 5, 5, 5, 5}, rounds)
	text, err := draw.SVG(ring(t, 5), draw.Options{})
	require.NoError(t, err)
	require.Contains(t, text, "all_reduce, ring, 5 ranks")
	require.Contains(t, text, "8 rounds; each rank sends 8/5·m bytes (m: one block)")
	require.Equal(t, 40+1, strings.Count(text, `class="h `), "an arrow for each message, and one in the legend")
}

func TestLimits(t *testing.T) {
	_, err := draw.SVG(ring(t, 64), draw.Options{})
	require.ErrorContains(t, err, "64 ranks in 126 rounds are too many to draw (8064 cells, at most 2048)")
	require.ErrorContains(t, err, "--rank N")
	five := 5
	text, err := draw.SVG(ring(t, 64), draw.Options{Only: &five})
	require.NoError(t, err)
	for _, name := range []string{">rank 4<", ">rank 5<", ">rank 6<"} {
		require.Contains(t, text, name)
	}
	require.NotContains(t, text, ">rank 7<")
	_, err = draw.SVG(ring(t, 4), draw.Options{Only: &five})
	require.ErrorContains(t, err, "rank 5 of a plan for 4 ranks")
	_, err = draw.SVG(ring(t, 400), draw.Options{})
	require.ErrorContains(t, err, "more than 262144 steps")
}

// TestNames checks that names are restricted, and that a long one makes the picture wider.
func TestNames(t *testing.T) {
	for _, name := range []string{`</text><script>alert("1")</script>`, `"'&<>]]>`, "a\x00b", "",
		strings.Repeat("w", 256)} {
		p := ring(t, 3)
		p.Name = name
		_, err := draw.SVG(p, draw.Options{})
		require.ErrorContains(t, err, "the name must be letters")
	}
	p := ring(t, 3)
	p.Name = strings.Repeat("w", 255)
	text, err := draw.SVG(p, draw.Options{})
	require.NoError(t, err)
	wellFormed(t, text)
	width, _ := size(t, text)
	require.Greater(t, width, 255*10)
}

func size(t *testing.T, text string) (width, height int) {
	t.Helper()
	_, err := fmt.Sscanf(text[strings.Index(text, "viewBox="):], `viewBox="0 0 %d %d"`, &width, &height)
	require.NoError(t, err)
	return width, height
}

// TestBands checks that rounds that do not fit side by side are placed below each other, so that a
// picture is no wider than a page, and that nothing is outside it.
func TestBands(t *testing.T) {
	for _, ranks := range []int{2, 5, 8, 20} {
		text, err := draw.SVG(ring(t, ranks), draw.Options{})
		require.NoError(t, err)
		width, height := size(t, text)
		require.LessOrEqual(t, width, 1280)
		bands := strings.Count(text, ">rank 0<")
		require.Equal(t, ranks > 5, bands > 1, "%d ranks have %d bands", ranks, bands)
		require.Equal(t, 2*(ranks-1)+2, strings.Count(text, `class="soft mid"`),
			"in, out and the rounds have a name each")
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			e, ok := token.(xml.StartElement)
			if !ok || e.Name.Local == "svg" {
				continue
			}
			at := map[string]int{}
			for _, a := range e.Attr {
				at[a.Name.Local], _ = strconv.Atoi(a.Value)
			}
			require.LessOrEqual(t, at["x"]+at["width"], width, "%v", e)
			require.LessOrEqual(t, at["y"]+at["height"], height, "%v", e)
			require.GreaterOrEqual(t, min(at["x"], at["y"]), 0, "%v", e)
		}
	}
}

// TestCrowded checks that a picture has bounds, whatever a plan does in one round, and that an
// identical arrow is drawn only once.
func TestCrowded(t *testing.T) {
	busy := one(dtype.AllReduce, 2, func(rank int) plan.Program {
		prog := plan.Program{Win: make([]plan.Extent, 1)}
		for range plan.MaxLanes {
			prog.Lanes = append(prog.Lanes, []plan.Step{
				{Kind: plan.Loop, Times: 140,
					Body: []plan.Step{{Kind: plan.Packet, Dst: win, Src: []plan.Ref{in}, Peer: 1 - rank}}},
				{Kind: plan.Copy, Dst: out, Src: []plan.Ref{in}}})
		}
		return prog
	})
	_, err := draw.SVG(busy, draw.Options{})
	require.ErrorContains(t, err, "more than 16384 messages are too many to draw")

	signals := one(dtype.AllReduce, 2, func(rank int) plan.Program {
		return plan.Program{Lanes: [][]plan.Step{{
			{Kind: plan.Loop, Times: 20_000, Body: []plan.Step{{Kind: plan.Signal, Peer: 1 - rank}}},
			{Kind: plan.Copy, Dst: out, Src: []plan.Ref{in}}}}}
	})
	text, err := draw.SVG(signals, draw.Options{})
	require.NoError(t, err)
	require.Less(t, len(text), 4<<10)
}

// one returns the plan in which every rank runs program.
func one(coll dtype.Collective, ranks int, program func(rank int) plan.Program) *plan.Plan {
	return &plan.Plan{Name: "test", Spec: plan.Spec{Coll: coll, Ranks: ranks}, Split: 1, Chans: 1, Flags: 1, Win: 1,
		Needs: plan.Messages | plan.Puts | plan.Gets, Program: program}
}

var (
	in  = plan.Ref{Buf: plan.In, N: 1}
	out = plan.Ref{Buf: plan.Out, N: 1}
	win = plan.Ref{Buf: plan.Win, N: 1}
)

func TestWindows(t *testing.T) {
	window := []plan.Extent{{}}
	puts := one(dtype.AllReduce, 2, func(rank int) plan.Program {
		return plan.Program{Win: window, Lanes: [][]plan.Step{{
			{Kind: plan.Put, Dst: win, Src: []plan.Ref{in}, Peer: 1 - rank},
			{Kind: plan.Signal, Peer: 1 - rank},
			{Kind: plan.Wait, Peer: 1 - rank},
			{Kind: plan.Reduce, Dst: out, Src: []plan.Ref{in, win}, Final: true},
		}}}
	})
	trace, err := draw.Run(puts)
	require.NoError(t, err)
	require.Equal(t, 1, trace.Rounds, "the signal belongs to the put")
	require.Equal(t, []int{1, 0}, trace.Out[1][0].Sum.Terms())
	text, err := draw.SVG(puts, draw.Options{})
	require.NoError(t, err)
	require.Contains(t, text, "put: written into the peer's window")

	gets := one(dtype.AllReduce, 3, func(rank int) plan.Program {
		lane := []plan.Step{{Kind: plan.Copy, Dst: win, Src: []plan.Ref{in}}}
		for k := 1; k < 3; k++ {
			lane = append(lane, plan.Step{Kind: plan.Signal, Peer: (rank + k) % 3})
		}
		for k := 1; k < 3; k++ {
			lane = append(lane, plan.Step{Kind: plan.Wait, Peer: (rank + k) % 3})
		}
		lane = append(lane, plan.Step{Kind: plan.GetReduce, Dst: out, Src: []plan.Ref{win, win, win},
			From: []int{0, 1, 2}, Final: true})
		return plan.Program{Win: window, Lanes: [][]plan.Step{lane}}
	})
	trace, err = draw.Run(gets)
	require.NoError(t, err)
	require.Equal(t, 2, trace.Rounds, "the signals are one round")
	require.Equal(t, []int{0, 1, 2}, trace.Out[1][0].Sum.Terms())
	require.Equal(t, []int{2, 2, 2}, trace.Sent)
	text, err = draw.SVG(gets, draw.Options{})
	require.NoError(t, err)
	require.Contains(t, text, "get: read from the peer's window")
	require.Contains(t, text, ">signal<")

	packets := one(dtype.AllReduce, 2, func(rank int) plan.Program {
		return plan.Program{Win: window, Lanes: [][]plan.Step{{
			{Kind: plan.Packet, Dst: win, Src: []plan.Ref{in}, Peer: 1 - rank},
			{Kind: plan.Wait, Peer: 1 - rank},
			{Kind: plan.Reduce, Dst: out, Src: []plan.Ref{win, in}, Final: true},
		}}}
	})
	trace, err = draw.Run(packets)
	require.NoError(t, err)
	require.Equal(t, 1, trace.Rounds)

	fetch := one(dtype.AllReduce, 2, func(rank int) plan.Program {
		return plan.Program{Win: window, Lanes: [][]plan.Step{{
			{Kind: plan.Copy, Dst: win, Src: []plan.Ref{in}},
			{Kind: plan.Signal, Peer: 1 - rank},
			{Kind: plan.Wait, Peer: 1 - rank},
			{Kind: plan.Get, Dst: out, Src: []plan.Ref{win}, Peer: 1 - rank},
		}}}
	})
	trace, err = draw.Run(fetch)
	require.NoError(t, err)
	require.Equal(t, []int{1}, trace.Out[0][0].Sum.Terms())
}

func TestWrongPlans(t *testing.T) {
	stuck := one(dtype.AllReduce, 2, func(rank int) plan.Program {
		return plan.Program{Lanes: [][]plan.Step{{{Kind: plan.Recv, Dst: out, Peer: 1 - rank}}}}
	})
	_, err := draw.SVG(stuck, draw.Options{})
	require.ErrorContains(t, err, "rank 0 waits for ever at step 0 of lane 0 (recv); goccl verify says why")
	undefined := one(dtype.AllReduce, 1, func(int) plan.Program {
		return plan.Program{Tmp: []plan.Extent{{}},
			Lanes: [][]plan.Step{{{Kind: plan.Copy, Dst: out, Src: []plan.Ref{{Buf: plan.Tmp, N: 1}}}}}}
	})
	_, err = draw.SVG(undefined, draw.Options{})
	require.ErrorContains(t, err, "tmp[0] of rank 0 is read, but nobody wrote it")
	_, err = draw.SVG(&plan.Plan{Name: "none", Spec: plan.Spec{Coll: dtype.AllReduce}}, draw.Options{})
	require.ErrorContains(t, err, "cannot be drawn")
	_, err = draw.SVG(&plan.Plan{Name: "none", Spec: plan.Spec{Coll: dtype.AllReduce, Ranks: 1}}, draw.Options{})
	require.ErrorContains(t, err, "has no programs")
}
