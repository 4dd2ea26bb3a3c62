package park

// Place is where a rank of a group runs, as it says itself.
type Place struct {
	Host   string // ranks of one host have the same
	Cores  string // where it may run: Affinity().String() there; "" if not known
	Usable int    // how many cores it may use at the same time: Cores() there; 0 if not known
}

// Oversubscribed reports whether ranks outnumber the cores that they share, on any host. It is a
// function of the places alone, so all ranks of a group find the same; other groups, and what
// changes later, do not count. Ranks share cores if they may run on the same one, or both share
// some with a third rank; one whose cores are not known shares cores with all of its host. Ranks
// bound to cores of their own do not crowd each other.
func Oversubscribed(ranks []Place) bool {
	type list struct{ host, cores string }
	places := map[list]*tenants{}
	var lists []list // in the order of ranks
	for _, r := range ranks {
		key := list{r.Host, r.Cores}
		t := places[key]
		if t == nil {
			t = &tenants{}
			t.cores, _ = ParseCPUs(r.Cores) // a list that cannot be read is not known
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

// tenants are ranks that share cores.
type tenants struct {
	cores   CPUSet
	unknown bool // those of some rank are not known
	guess   int  // how many such a rank says that it may use
	ranks   int
	grant   int // the least that control groups grant one of them, where that is less than its cores; else 0
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
