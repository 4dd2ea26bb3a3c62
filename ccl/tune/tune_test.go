package tune

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo"
)

// kind is a kind of group.
type kind struct {
	hosts   int // 0: each rank is one
	slot    int
	crowded bool // the ranks share one core
	claims  bool
}

// of returns a group of that kind.
func (k kind) of(ranks int) *topo.Group {
	if k.hosts == 0 {
		k.hosts = ranks
	}
	said := make([]topo.Rank, ranks)
	for rank := range said {
		said[rank] = topo.Rank{Number: rank, Size: ranks, Transports: []string{"shm"}, Claims: k.claims,
			Place: topo.Place{Network: uint64(rank * k.hosts / ranks)}}
		if k.crowded {
			said[rank].Cores = "0"
		}
	}
	g, err := topo.Agree(said)
	if err != nil {
		panic(err)
	}
	return g.WithSlot(k.slot)
}

// choose returns the choice for a group of a kind.
func choose(coll dtype.Collective, ranks int, bytes int64, k kind, wishes Wishes) string {
	return Choose(Call{coll, bytes}, k.of(ranks), &wishes)
}

// TestBroadcastOfClaiming checks where the choice depends on the processor.
func TestBroadcastOfClaiming(t *testing.T) {
	k := kind{hosts: 1, slot: 1 << 20, crowded: true, claims: true}
	other, apart := k, k
	other.claims, apart.crowded = false, false
	for _, test := range []struct {
		ranks int
		bytes int64
		kind  kind
		want  string
	}{
		{4, 256 << 10, k, "window"}, {3, 64 << 10, k, "window"}, {4, 32 << 10, k, "flat"}, {4, 4 << 20, k, "window"},
		{4, 256 << 10, other, "binomial"}, {4, 64 << 10, other, "flat"}, {2, 256 << 10, k, "binomial"},
		{4, 256 << 10, apart, "binomial"},
	} {
		if got := choose(dtype.Broadcast, test.ranks, test.bytes, test.kind, Wishes{}); got != test.want {
			t.Errorf("%d ranks, %d bytes, %+v: %s, want %s", test.ranks, test.bytes, test.kind, got, test.want)
		}
	}
}

// free returns the choice for calls that no row fits.
func free(coll dtype.Collective, ranks int, bytes int64, k kind, wishes Wishes) string {
	return unmeasured(Call{coll, bytes}, k.of(ranks), &wishes)
}

func TestUnmeasured(t *testing.T) {
	const K = 1 << 10
	for _, test := range []struct {
		coll  dtype.Collective
		ranks int
		bytes int64
		want  string
	}{
		{dtype.AllReduce, 1, 1 << 40, "ring"},
		{dtype.AllReduce, 2, 0, "direct"},
		{dtype.AllReduce, 2, 32 * K, "direct"},
		{dtype.AllReduce, 2, 32*K + 1, "ring"},
		{dtype.AllReduce, 4, 32 * K, "direct"},
		{dtype.AllReduce, 4, 32*K + 1, "ring"},
		{dtype.AllReduce, 5, 24 * K, "direct"},
		{dtype.AllReduce, 5, 24*K + 1, "ring"},
		{dtype.AllReduce, 16, 6 * K, "direct"},
		{dtype.AllReduce, 16, 7 * K, "ring"},
		{dtype.AllReduce, 17, 8 * K, "recursive_doubling"},
		{dtype.AllReduce, 17, 8*K + 1, "rabenseifner"},
		{dtype.AllReduce, 17, 17 * 8 * K, "rabenseifner"},
		{dtype.AllReduce, 17, 17*8*K + 1, "ring"},
		{dtype.AllReduce, 1 << 16, 8, "recursive_doubling"},
		{dtype.AllGather, 4, 128 * K, "direct"},
		{dtype.AllGather, 4, 128*K + 4, "ring"},
		{dtype.AllGather, 64, 64 * 8 * K, "bruck"},
		{dtype.AllGather, 64, 64*8*K + 1, "ring"},
		{dtype.ReduceScatter, 2, 64 * K, "direct"},
		{dtype.ReduceScatter, 2, 64*K + 2, "ring"},
		{dtype.ReduceScatter, 17, 17 * 8 * K, "pat"},
		{dtype.ReduceScatter, 17, 17*8*K + 1, "ring"},
		{dtype.ReduceScatter, 1 << 16, 1 << 62, "ring"},
		{dtype.AllToAll, 8, 1 << 40, "linear"},
		{dtype.AllToAll, 9, 0, "pairwise"},
		{dtype.Broadcast, 9, 128 * K, "binomial"},
		{dtype.Broadcast, 9, 128*K + 1, "double_binary_tree"},
		{dtype.Reduce, 2, 4, "binomial"},
		{dtype.Scatter, 3, 4, "linear"},
		{dtype.Gather, 3, 4, "linear"},
		{dtype.Barrier, 3, 0, "dissemination"},
		{dtype.Send, 2, 4, ""},
	} {
		if got := free(test.coll, test.ranks, test.bytes, kind{}, Wishes{}); got != test.want {
			t.Errorf("%v on %d ranks, %d bytes: %s, want %s", test.coll, test.ranks, test.bytes, got, test.want)
		}
	}
}

// TestUnmeasuredExists asks for every collective at all sizes: algo knows the algorithm, and the
// choice changes with the size at most once, on many ranks twice.
func TestUnmeasuredExists(t *testing.T) {
	for _, coll := range dtype.Collectives() {
		for _, ranks := range []int{1, 2, 3, 4, 5, 8, 9, 64, 4096} {
			last, changes, on := "", -1, kind{}.of(ranks)
			for bytes := int64(0); bytes < 1<<40; bytes = bytes*2 + 1 {
				name := unmeasured(Call{coll, bytes}, on, &Wishes{})
				if _, err := algo.Find(coll, name); err != nil {
					t.Fatal(err)
				}
				if name != last {
					last = name
					changes++
				}
			}
			if changes > 1 && !(changes == 2 && ranks > manyRanks) {
				t.Errorf("%v on %d ranks changes its algorithm %d times", coll, ranks, changes)
			}
		}
	}
}

// TestAmong has someone who knows the network choose: between ranks that are hosts of their own,
// and among hosts that are levels, if no row fits and ranks need not reduce in their order.
func TestAmong(t *testing.T) {
	var asked []Call
	wishes := Wishes{Among: func(call Call, usual string) string {
		asked = append(asked, call)
		if usual == "ring" {
			return "segmented_ring"
		}
		return usual
	}}
	const large = 64 << 20
	for _, test := range []struct {
		ranks, hosts int
		coll         dtype.Collective
		want         string
		asked        []Call
	}{
		{4, 4, dtype.AllReduce, "segmented_ring", []Call{{dtype.AllReduce, large}}},
		{4, 4, dtype.Barrier, "dissemination", []Call{{dtype.Barrier, large}}},
		{8, 4, dtype.AllReduce, "hierarchical.direct.segmented_ring", []Call{{dtype.AllReduce, large / 2}}},
		{8, 4, dtype.Broadcast, "binomial", nil}, // levels do not help it
		{8, 1, dtype.AllReduce, "ring", nil},
	} {
		asked = nil
		got := Choose(Call{test.coll, large}, topo.Spread(test.ranks, test.hosts), &wishes)
		require.Equal(t, test.want, got)
		require.Equal(t, test.asked, asked)
	}
	why := func(coll dtype.Collective, ranks, hosts int) Why {
		_, why := Explain(Call{coll, large}, topo.Spread(ranks, hosts), &wishes)
		return why
	}
	require.Equal(t, Predicted, why(dtype.AllReduce, 4, 4))
	require.Equal(t, Ruled, why(dtype.Reduce, 4, 4), "the rules say the same")
	require.Equal(t, Ruled, why(dtype.AllReduce, 8, 1))
	wishes.Override = map[dtype.Collective]string{dtype.AllReduce: "naive"}
	require.Equal(t, Wished, why(dtype.AllReduce, 4, 4))
	wishes.Override = nil
	wishes.Table, _ = NewTable([]Row{{Coll: dtype.AllReduce, First: 2, Last: 9, Hosts: Hosts{First: 1, Last: 9},
		Bytes: AnySize, Algorithm: "naive"}})
	require.Equal(t, InTable, why(dtype.AllReduce, 4, 4))
	wishes.Table = nil
	wishes.Determinism = 4
	asked = nil
	require.Equal(t, "two_shot", Choose(Call{dtype.AllReduce, large}, topo.Spread(4, 4), &wishes))
	require.Empty(t, asked)
}

// TestUnmeasuredManyHosts has hosts of 8 ranks: the message between hosts decides.
func TestUnmeasuredManyHosts(t *testing.T) {
	const K = 1 << 10
	for _, test := range []struct {
		coll  dtype.Collective
		hosts int
		bytes int64
		slot  int
		want  string
	}{
		{dtype.AllReduce, 16, 8 * 6 * K, 0, "hierarchical.direct.direct"},
		{dtype.AllReduce, 16, 8 * 7 * K, 0, "hierarchical.direct.ring"},
		{dtype.AllReduce, 17, 8, 0, "hierarchical.direct.recursive_doubling"},
		{dtype.AllReduce, 17, 8 * 8 * K, 0, "hierarchical.direct.recursive_doubling"},
		{dtype.AllReduce, 17, 8 * 9 * K, 0, "hierarchical.direct.rabenseifner"},
		{dtype.AllReduce, 17, 8 * 9 * K, 1 << 20, "hierarchical.window.rabenseifner"},
		{dtype.AllReduce, 128, 8 * 128 * 8 * K, 0, "hierarchical.direct.rabenseifner"},
		{dtype.AllReduce, 128, 8 * 128 * 9 * K, 0, "hierarchical.direct.ring"},
		{dtype.AllGather, 128, 1024 * 8 * K, 0, "hierarchical.direct.bruck"},
		{dtype.AllGather, 128, 1024 * 9 * K, 0, "hierarchical.direct.ring"},
		{dtype.ReduceScatter, 128, 1024 * 8 * K, 0, "hierarchical.direct.pat"},
		{dtype.AllToAll, 2, 0, 0, "pairwise"},
		{dtype.AllToAll, 3, 0, 0, "hierarchical"},
		{dtype.AllToAll, 3, 24 * 32 * K, 1 << 20, "hierarchical"},
		{dtype.AllToAll, 3, 24*32*K + 1, 0, "pairwise"},
	} {
		got := free(test.coll, 8*test.hosts, test.bytes, kind{hosts: test.hosts, slot: test.slot}, Wishes{})
		if got != test.want {
			t.Errorf("%v on %d hosts, %d bytes: %s, want %s", test.coll, test.hosts, test.bytes, got, test.want)
		}
		if _, err := algo.Find(test.coll, got); err != nil {
			t.Error(err)
		}
	}
}

// TestUnmeasuredWindows checks that ranks with windows use them at every level of determinism,
// except for large broadcasts.
// TestSites checks that hosts at several sites are levels, of algorithms that make plans for them.
func TestSites(t *testing.T) {
	const K = 1 << 10
	pairs := topo.AtSites([]int{0, 1, 2, 3}, []int{0, 0, 1, 1})
	three := topo.AtSites([]int{0, 1, 2, 3, 4, 5}, []int{0, 0, 1, 1, 2, 2})
	uneven := topo.AtSites([]int{0, 1, 2, 3, 4}, []int{0, 0, 0, 1, 1})
	levels := topo.AtSites([]int{0, 0, 1, 1, 2, 2, 3, 3}, []int{0, 0, 1, 1})
	single := topo.AtSites([]int{0, 0, 1, 1}, []int{0, 1})
	for _, test := range []struct {
		on    *topo.Group
		coll  dtype.Collective
		bytes int64
		want  string
	}{
		{pairs, dtype.AllReduce, 8, "hierarchical.direct.direct"},
		{pairs, dtype.AllReduce, 64 * K, "hierarchical.direct.direct"},
		{pairs, dtype.AllReduce, 1 << 20, "hierarchical.ring.direct"},
		{pairs, dtype.AllReduce, 1<<20 + 1, "ring"},
		{pairs, dtype.AllGather, 8, "hierarchical.direct.direct"},
		{pairs, dtype.ReduceScatter, 1 << 20, "hierarchical.ring.direct"},
		{pairs, dtype.Broadcast, 8, "binomial"},
		{three, dtype.AllReduce, 64 * K, "hierarchical.direct.direct"},
		{three, dtype.AllReduce, 1 << 20, "hierarchical.ring.two_shot"},
		{uneven, dtype.AllReduce, 1 << 20, "hierarchical.ring.direct"},
		{uneven, dtype.AllGather, 1 << 20, "ring"},
		{levels, dtype.AllReduce, 1 << 20, "hierarchical.direct.ring.direct"},
		{levels, dtype.AllReduce, 4 << 20, "hierarchical.direct.ring"},
		{levels.WithSlot(64 * K), dtype.AllReduce, 1 << 20, "hierarchical.window.ring.direct"},
		{levels.WithSlot(64 * K), dtype.AllGather, 16 * K, "hierarchical.window.direct.direct"},
		{single, dtype.ReduceScatter, 1 << 20, "hierarchical.direct.ring"},
		{topo.AtSites([]int{0, 1, 2}, []int{0, 1, 2}), dtype.AllReduce, 8, "direct"},
		{topo.AtSites([]int{0, 0, 1, 1, 2, 2}, []int{0, 0, 1}), dtype.AllReduce, 1 << 20, "hierarchical.direct.ring"},
	} {
		name := unmeasured(Call{test.coll, test.bytes}, test.on, &Wishes{})
		require.Equal(t, test.want, name, "%v of %d bytes on %s", test.coll, test.bytes, test.on.Form())
		a, err := algo.Find(test.coll, name)
		require.NoError(t, err)
		_, err = a.OnHosts(plan.Spec{Coll: test.coll, Ranks: test.on.Size()}, test.on)
		require.NoError(t, err, name)
		ordered := unmeasured(Call{test.coll, test.bytes}, test.on, &Wishes{Determinism: 3})
		if test.coll.Reduces() {
			require.NotContains(t, ordered, "hierarchical")
		}
	}
}

func TestUnmeasuredWindows(t *testing.T) {
	for _, determinism := range []int{2, 3, 4} {
		k, wishes := kind{hosts: 1, slot: 1 << 20}, Wishes{Determinism: determinism}
		for _, test := range []struct {
			coll  dtype.Collective
			ranks int
			bytes int64
			want  string
		}{
			{dtype.AllReduce, 2, 96 << 10, "one_shot_window"}, {dtype.AllReduce, 2, 1 << 20, "two_shot_window"},
			{dtype.AllReduce, 4, 32 << 10, "one_shot_window"}, {dtype.AllReduce, 4, 33 << 10, "two_shot_window"},
			{dtype.AllReduce, 64, 1 << 30, "two_shot_window"},
			{dtype.ReduceScatter, 4, 1 << 20, "window"}, {dtype.AllGather, 4, 8, "window"},
			{dtype.AllToAll, 4, 0, "window"}, {dtype.Barrier, 4, 0, "flags"},
			{dtype.Broadcast, 4, 8, "window"}, {dtype.Broadcast, 4, 1 << 20, "binomial"},
		} {
			if got := free(test.coll, test.ranks, test.bytes, k, wishes); got != test.want {
				t.Errorf("%v of %d bytes on %d ranks, level %d: %s, want %s",
					test.coll, test.bytes, test.ranks, determinism, got, test.want)
			}
		}
	}
}

// TestUnmeasuredReduce checks that only ranks that share cores reduce over windows, and only long
// blocks.
func TestUnmeasuredReduce(t *testing.T) {
	for _, determinism := range []int{2, 4} {
		short := map[int]string{2: "binomial", 4: "flat"}[determinism]
		for _, test := range []struct {
			ranks  int
			bytes  int64
			shared bool
			want   string
		}{
			{2, 1 << 30, true, short}, {3, 64 << 10, true, short}, {3, 64<<10 + 1, true, "window"},
			{64, 1 << 30, true, "window"}, {8, 1 << 20, false, short},
		} {
			k, wishes := kind{hosts: 1, slot: 1 << 20, crowded: test.shared}, Wishes{Determinism: determinism}
			if got := free(dtype.Reduce, test.ranks, test.bytes, k, wishes); got != test.want {
				t.Errorf("%d bytes on %d ranks, cores are shared %v, level %d: %s, want %s",
					test.bytes, test.ranks, test.shared, determinism, got, test.want)
			}
			k.slot = 0
			if got := free(dtype.Reduce, test.ranks, test.bytes, k, wishes); got != short {
				t.Errorf("%d bytes on %d ranks without windows, level %d: %s, want %s",
					test.bytes, test.ranks, determinism, got, short)
			}
		}
	}
}

// TestDeterminism checks that levels 3 and 4 leave only algorithms that reduce in rank order.
func TestDeterminism(t *testing.T) {
	for _, level := range []int{3, 4} {
		for _, coll := range dtype.Collectives() {
			for _, ranks := range []int{1, 2, 5, 64} {
				for _, bytes := range []int64{0, 8, 1 << 20, 1 << 40} {
					name := choose(coll, ranks, bytes, kind{}, Wishes{Determinism: level})
					a, err := algo.Find(coll, name)
					if err != nil {
						t.Fatal(err)
					}
					if coll.Reduces() && a.Level != 4 {
						t.Errorf("%v on %d ranks, %d bytes at level %d: %s, of level %d",
							coll, ranks, bytes, level, name, a.Level)
					}
				}
			}
		}
	}
	if got := choose(dtype.AllReduce, 4, 1<<20, kind{}, Wishes{Determinism: 2}); got !=
		choose(dtype.AllReduce, 4, 1<<20, kind{}, Wishes{}) {
		t.Errorf("level 2 is no restriction, but chose %s", got)
	}
}

func TestOverride(t *testing.T) {
	override, err := ParseOverride(" all_reduce = ring,, broadcast=binomial, allgather=direct,")
	if err != nil {
		t.Fatal(err)
	}
	want := map[dtype.Collective]string{
		dtype.AllReduce: "ring", dtype.Broadcast: "binomial", dtype.AllGather: "direct",
	}
	if !maps.Equal(override, want) {
		t.Errorf("got %v, want %v", override, want)
	}
	if got := choose(dtype.AllReduce, 2, 8, kind{}, Wishes{Override: override}); got != "ring" {
		t.Errorf("all_reduce: %s in spite of the override", got)
	}
	if got := choose(dtype.ReduceScatter, 2, 8, kind{}, Wishes{Override: override}); got !=
		choose(dtype.ReduceScatter, 2, 8, kind{}, Wishes{}) {
		t.Errorf("reduce_scatter: %s, though it is not overridden", got)
	}
	text := formatOverride(override)
	if text != "broadcast=binomial,all_gather=direct,all_reduce=ring" {
		t.Errorf("formatted as %s", text)
	}
	again, err := ParseOverride(text)
	if err != nil || !maps.Equal(again, override) {
		t.Errorf("parsed back as %v, %v", again, err)
	}
	if none, err := ParseOverride(""); err != nil || len(none) != 0 {
		t.Errorf("the empty text: %v, %v", none, err)
	}
}

func TestOverrideErrors(t *testing.T) {
	for text, want := range map[string]string{
		"ring":                              `"ring": want collective=algorithm`,
		"all_reduces=ring":                  `unknown collective "all_reduces"; known: broadcast, scatter`,
		"send=ring":                         `unknown collective "send"; known: broadcast`,
		"all_reduce=rings":                  `unknown algorithm "rings" for all_reduce; known: direct, ring`,
		"all_reduce=":                       `unknown algorithm "" for all_reduce; known: direct, ring`,
		"all_reduce=ring,all_reduce=direct": "both ring and direct; leave one",
	} {
		_, err := ParseOverride(text)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// formatOverride returns the text that ParseOverride parses, ordered by collective.
func formatOverride(override map[dtype.Collective]string) string {
	var parts []string
	for _, coll := range slices.Sorted(maps.Keys(override)) {
		parts = append(parts, coll.String()+"="+override[coll])
	}
	return strings.Join(parts, ",")
}

func FuzzParseOverride(f *testing.F) {
	f.Add("all_reduce=ring,broadcast=binomial")
	f.Add("=,==,a=b")
	f.Fuzz(func(t *testing.T, text string) {
		override, err := ParseOverride(text)
		if err != nil {
			return
		}
		again, err := ParseOverride(formatOverride(override))
		if err != nil || !maps.Equal(again, override) {
			t.Errorf("%q: %v is parsed back as %v, %v", text, override, again, err)
		}
	})
}

// Devices read all operands at once while that takes less time than more operations would.
func TestChooseOnDevice(t *testing.T) {
	for _, c := range []struct {
		ranks int
		rate  float64
		word  float64
		last  int64 // by one shot
	}{
		{2, 0, 0, 192_000}, {2, 1.2e10, 0, 192_000}, {2, 3e11, 0, 4_800_000}, {3, 0, 0, 89_999}, {8, 0, 0, 39_183},
		{8, 2.5e10, 0, 81_632}, {8, 4.5e11, 0, 1_469_387}, {8, 4.5e11, 2e-07, 646_530}, {64, 2.5e10, 0, 53_212},
	} {
		on := topo.Spread(c.ranks, 1).WithDevices(topo.Devices{Rate: c.rate, Word: c.word})
		wishes := Wishes{}
		check := func(coll dtype.Collective, bytes int64, want string) {
			t.Helper()
			if got := Choose(Call{coll, bytes}, on, &wishes); got != want {
				t.Errorf("%+v: %v of %d bytes is %s, want %s", c, coll, bytes, got, want)
			}
		}
		check(dtype.AllReduce, 1, "one_shot_window")
		check(dtype.AllReduce, c.last, "one_shot_window")
		check(dtype.AllReduce, c.last+1, "two_shot_window")
		check(dtype.AllReduce, 1<<30, "two_shot_window")
		check(dtype.AllGather, 100, "window")
		wishes.Override = map[dtype.Collective]string{dtype.AllReduce: "two_shot_window"}
		check(dtype.AllReduce, 1, "two_shot_window")
	}
}

// Devices on several hosts have windows within the hosts, where that keeps the order that is asked
// for.
func TestChooseOnDevicesOfHosts(t *testing.T) {
	for _, c := range []struct {
		hosts, determinism int
		coll               dtype.Collective
		bytes              int64
		want               string
	}{
		{2, 2, dtype.AllReduce, 1 << 10, "hierarchical.window.direct"},
		{2, 2, dtype.AllReduce, 16 << 20, "hierarchical.window.ring"},
		{4, 2, dtype.AllGather, 16 << 20, "hierarchical.window.ring"},
		{4, 2, dtype.ReduceScatter, 1 << 10, "hierarchical.window.direct"},
		{2, 4, dtype.AllReduce, 16 << 20, "two_shot"},
		{2, 4, dtype.AllGather, 16 << 20, "hierarchical.window.ring"},
		{3, 2, dtype.AllReduce, 16 << 20, "ring"},
		{8, 2, dtype.AllReduce, 16 << 20, "ring"},
		{2, 2, dtype.AllToAll, 16 << 20, "linear"},
		{2, 2, dtype.Broadcast, 100, "binomial"},
	} {
		on, wishes := topo.Spread(8, c.hosts).WithDevices(topo.Devices{}), &Wishes{Determinism: c.determinism}
		if got := Choose(Call{c.coll, c.bytes}, on, wishes); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
