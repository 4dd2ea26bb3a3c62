package tune

import (
	"strings"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// ParseOverride parses a choice of algorithms such as "all_reduce=ring,broadcast=binomial". Spaces
// and empty parts are ignored; an empty text overrides nothing.
func ParseOverride(text string) (map[dtype.Collective]string, error) {
	override := map[dtype.Collective]string{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		left, right, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fault.New(fault.Invalid,
				"algorithm override %q: want collective=algorithm, as in all_reduce=ring", part)
		}
		coll, err := dtype.ParseCollective(strings.TrimSpace(left))
		if err != nil || !coll.Valid() {
			return nil, fault.New(fault.Invalid, "algorithm override %q: unknown collective %q; known: %s", part,
				strings.TrimSpace(left), names(dtype.Collectives()))
		}
		found, err := algo.Find(coll, strings.TrimSpace(right))
		if err != nil {
			return nil, fault.New(fault.Invalid, "algorithm override %q: unknown algorithm %q for %v; known: %s", part,
				strings.TrimSpace(right), coll, strings.Join(algo.Names(coll), ", "))
		}
		if old, twice := override[coll]; twice && old != found.Name {
			return nil, fault.New(fault.Invalid, "algorithm override %q: %v is to be both %s and %s; leave one",
				text, coll, old, found.Name)
		}
		override[coll] = found.Name
	}
	return override, nil
}

func names(colls []dtype.Collective) string {
	words := make([]string, len(colls))
	for i, c := range colls {
		words[i] = c.String()
	}
	return strings.Join(words, ", ")
}
