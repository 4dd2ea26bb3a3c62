package park

// Place describes where a rank of a group runs, as reported by that rank.
type Place struct {
	Host   string // equal for ranks of one host
	Cores  string // where it may run: Affinity().String() there; "" if not known
	Usable int    // how many cores it may use at the same time: Cores() there; 0 if not known
}

// Oversubscribed reports whether, on any host, ranks outnumber the cores that they share. The
// result depends only on the places, so all ranks of a group get the same one; other groups and
// later changes do not count. Ranks share cores if they may run on the same one, or if both share
// some with a third rank. A rank whose cores are not known shares cores with all ranks of its host.
// Ranks bound to cores of their own do not crowd each other.
func Oversubscribed(ranks []Place) bool {
	type list struct{ host, cores string }
	places := map[list]*tenants{}
	var lists []list // in the order of ranks
	for _, r := range ranks {
		key := list{r.Host, r.Cores}
		t := places[key]
		if t == nil {
			t = &tenants{}
			t.cores, _ = ParseCPUs(r.Cores) // an unreadable list counts as not known
			t.unknown = len(t.cores) == 0
			places[key], lists = t, append(lists, key)
		}
		t.ranks++
		n := t.cores.Count()
		switch {
		case t.unknown:
			t.guess = max(t.guess, r.Usable)
		case r.Usable > 0 && r.Usable < n && (t.grant == 0 || r.Usable < t.grant):
			t.grant = r.Usable
		}
	}
	hosts := map[string][]*tenants{}
	for _, key := range lists {
		merged := places[key]
		var others []*tenants
		for _, t := range hosts[key.host] {
			if t.unknown || merged.unknown || t.cores.Overlaps(merged.cores) {
				merged.merge(t)
			} else {
				others = append(others, t)
			}
		}
		hosts[key.host] = append(others, merged)
	}
	for _, parts := range hosts {
		for _, t := range parts {
			if t.crowded() {
				return true
			}
		}
	}
	return false
}

// tenants is a set of ranks that share cores.
type tenants struct {
	cores   CPUSet
	unknown bool // the cores of some rank are not known
	guess   int  // the most cores that such a rank reports as usable
	ranks   int
	// grant is the least that control groups grant one of the ranks, if that is less than its
	// cores; else 0.
	grant int
}

func (t *tenants) merge(other *tenants) {
	t.cores = t.cores.union(other.cores)
	t.unknown = t.unknown || other.unknown
	t.guess = max(t.guess, other.guess)
	t.ranks += other.ranks
	if other.grant > 0 && (t.grant == 0 || other.grant < t.grant) {
		t.grant = other.grant
	}
}

func (t *tenants) crowded() bool {
	room := max(t.cores.Count(), t.guess)
	if t.grant > 0 {
		room = min(room, t.grant)
	}
	return room > 0 && t.ranks > room
}
