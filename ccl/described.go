package ccl

import (
	"fmt"
	"os"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/internal/park"
)

// surroundings are what a rank says of the network and of its machine.
type surroundings struct {
	network *cost.Path  // what messages between hosts cost; nil if that is not known
	far     *cost.Path  // likewise, between sites
	by      string      // where that comes from, for people
	hosts   int         // of the network that GOCCL_TOPO describes; 0 for none
	rates   *topo.Rates // of the cores; nil if they are not known
	lacks   string      // what the machine of GOCCL_TOPO has and this process has not
}

// look finds out what a rank of a group says. What the network costs is what the file says that
// GOCCL_COSTS names, or else what follows from GOCCL_TOPO, or else what is kept for this user and
// host. Rates are those of GOCCL_TOPO, or else those of the machine: they are measured if nobody
// has.
func look(opts *GroupOptions, size int) (*surroundings, error) {
	s := &surroundings{}
	var err error
	if opts.Costs != "" {
		if s.network, s.far, err = namedCosts(opts.Costs); err != nil {
			return nil, err
		}
		s.by = "GOCCL_COSTS"
	}
	if opts.Topo != "" && opts.Topo != network.Off {
		if err := s.describe(opts, size); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "GOCCL_TOPO=%s is refused", opts.Topo)
		}
	}
	if s.network == nil && opts.Costs == "" {
		s.network, s.far = keptCosts()
		s.by = "goccl tune fit"
	}
	if s.rates == nil && opts.Topo == "" && size > 1 {
		s.rates = probe.JoiningRates(cost.Folder())
	}
	return s, nil
}

// describe takes over what GOCCL_TOPO says.
func (s *surroundings) describe(opts *GroupOptions, size int) error {
	if info, err := os.Stat(opts.Topo); err == nil && !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "it is not a file")
	}
	t, err := network.Open(opts.Topo, size)
	if err != nil {
		return err
	}
	d, err := t.Describe(size)
	if err != nil {
		return err
	}
	s.hosts = d.Hosts
	if mine := park.Cores(); d.Cores > mine {
		d.Rates.All = min(d.Rates.All, float64(mine)*d.Rates.One)
		s.lacks = fmt.Sprintf("GOCCL_TOPO=%s: it has %d cores, this process may use %d", opts.Topo, d.Cores, mine)
	}
	if d.Rates.Known() {
		s.rates = &d.Rates
	}
	if opts.Costs != "" {
		return nil
	}
	usual, _ := keptCosts()
	if usual == nil {
		usual = &cost.Usual().Network
	}
	if s.network, err = d.Path(*usual); s.network != nil {
		s.by = "GOCCL_TOPO"
	}
	return err
}

// namedCosts reads what the network costs, and what it costs between sites, nil for off and for
// what the file does not say.
func namedCosts(name string) (network, far *cost.Path, err error) {
	if name == cost.Off {
		return nil, nil, nil
	}
	file, err := cost.Read(name)
	if err != nil {
		return nil, nil, fault.Wrap(fault.Invalid, err, "GOCCL_COSTS")
	}
	if network, far = file.Paths(); network == nil && far == nil {
		return nil, nil, fault.New(fault.Invalid,
			"GOCCL_COSTS=%s: it says nothing of a network; measure one with goccl tune fit", name)
	}
	return network, far, nil
}

// keptCosts is namedCosts for the file that is kept for this user and host: no error in it is one
// of a group.
func keptCosts() (network, far *cost.Path) {
	file, err := cost.Read(cost.Kept())
	if err != nil {
		return nil, nil
	}
	return file.Paths()
}
