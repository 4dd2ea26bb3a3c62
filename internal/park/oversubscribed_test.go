package park

import (
	"math/rand/v2"
	"testing"
)

func TestOversubscribed(t *testing.T) {
	on := func(host, cores string, usable, ranks int) (places []Place) {
		for range ranks {
			places = append(places, Place{host, cores, usable})
		}
		return places
	}
	each := func(places ...[]Place) (all []Place) {
		for _, p := range places {
			all = append(all, p...)
		}
		return all
	}
	for _, test := range []struct {
		name  string
		ranks []Place
		want  bool
	}{
		{"nobody", nil, false},
		{"1 rank on 1 core", on("a", "0", 1, 1), false},
		{"2 ranks on 2 cores", on("a", "0-1", 2, 2), false},
		{"3 ranks on 2 cores", on("a", "0-1", 2, 3), true},
		{"4 ranks on 2 cores", on("a", "0-1", 2, 4), true},
		{"2 ranks on 1 core", on("a", "5", 1, 2), true},
		{"2 ranks bound to a core each", each(on("a", "0", 1, 1), on("a", "1", 1, 1)), false},
		{"3 ranks, two of them bound to the same core", each(on("a", "0", 1, 2), on("a", "1", 1, 1)), true},
		{"4 ranks of 2 hosts, 2 cores each", each(on("a", "0-1", 2, 2), on("b", "0-1", 2, 2)), false},
		{"3 ranks on one of 2 hosts", each(on("a", "0-1", 2, 1), on("b", "0-1", 2, 3)), true},
		{"ranks of many hosts", each(on("a", "0-63", 64, 64), on("b", "0-63", 64, 64), on("c", "0-1", 2, 3)), true},
		{"8 cores of which 2 are granted", on("a", "0-7", 2, 4), true},
		{"8 cores of which 4 are granted", on("a", "0-7", 4, 4), false},
		{"one of two is granted less", each(on("a", "0-7", 8, 1), on("a", "0-7", 1, 1)), true},
		{"a chain of lists that overlap",
			each(on("a", "0-1", 2, 2), on("a", "1-2", 2, 1), on("a", "2-3", 2, 1)), false},
		{"a chain with a rank too many", each(on("a", "0-1", 2, 2), on("a", "1-2", 2, 1), on("a", "2-3", 2, 2)), true},
		{"two nodes of a host, one crowded", each(on("a", "0-3", 4, 2), on("a", "4-7", 4, 5)), true},
		{"cores not known, as many as ranks", on("a", "", 2, 2), false},
		{"cores not known, fewer than ranks", on("a", "", 2, 3), true},
		{"nothing known", on("a", "", 0, 100), false},
		{"a list that cannot be read", on("a", "x", 2, 3), true},
		{"one unknown beside two bound", each(on("a", "0", 1, 1), on("a", "", 2, 1), on("a", "1", 1, 1)), true},
		{"a use that cannot be", on("a", "0-1", -7, 2), false},
	} {
		for range 4 { // the order of ranks does not matter
			if got := Oversubscribed(test.ranks); got != test.want {
				t.Errorf("%s: %v, want %v (%v)", test.name, got, test.want, test.ranks)
			}
			rand.Shuffle(len(test.ranks), func(i, j int) {
				test.ranks[i], test.ranks[j] = test.ranks[j], test.ranks[i]
			})
		}
	}
}

// TestOversubscribedIsCrowding checks that, for a single host with known cores, the result is the
// same as crowding's for a host without other groups: ranks outnumber cores.
func TestOversubscribedIsCrowding(t *testing.T) {
	for ranks := 1; ranks <= 9; ranks++ {
		for cores := 1; cores <= 9; cores++ {
			var set CPUSet
			for cpu := range cores {
				set = set.With(cpu)
			}
			places := make([]Place, ranks)
			for i := range places {
				places[i] = Place{"a", set.String(), cores}
			}
			if got := Oversubscribed(places); got != (ranks > cores) {
				t.Errorf("%d ranks on %d cores: %v", ranks, cores, got)
			}
		}
	}
}
