package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/plans"
)

// file is a plan file named by --algo.
type file struct {
	name string
	plan *plan.Plan
}

type planFiles []file

// readFiles loads and verifies the plan files among names.
func readFiles(names string) (files planFiles, err error) {
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		if info, failed := os.Stat(name); failed != nil || !info.Mode().IsRegular() {
			continue
		}
		p, err := plans.Load(name)
		if err != nil {
			return nil, err
		}
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			return nil, fmt.Errorf("%s: %s", name, cli.Message(err))
		}
		files = append(files, file{name, p})
	}
	return files, nil
}

// spec returns the spec of the files, or the given one if there are no files. The flags in set must
// not contradict the files.
func (files planFiles) spec(given plan.Spec, set *pflag.FlagSet) (plan.Spec, error) {
	spec := given
	for i, f := range files {
		if i > 0 && f.plan.Spec != spec {
			return spec, fmt.Errorf("%s is a plan for %v, but %s is one for %v; compare plans for the same",
				f.name, f.plan.Spec, files[0].name, spec)
		}
		spec = f.plan.Spec
	}
	if files == nil {
		return spec, nil
	}
	says := map[string][2]any{"op": {given.Coll, spec.Coll}, "ranks": {given.Ranks, spec.Ranks},
		"root": {given.Root, spec.Root}, "shape": {given.Shape, spec.Shape}}
	var err error
	set.Visit(func(f *pflag.Flag) {
		if s, ok := says[f.Name]; ok && s[0] != s[1] {
			err = fmt.Errorf("%s is a plan for %v, but --%s is %s; leave it out", files[0].name, spec, f.Name, f.Value)
		}
	})
	return spec, err
}

// makePlans makes the plans of the named algorithms, or takes them from the files. "all" leaves out
// the algorithms that have no plan for the spec.
func makePlans(spec plan.Spec, names string, files planFiles) ([]*plan.Plan, error) {
	var made []*plan.Plan
	if names == "all" {
		var last error
		for _, a := range algo.For(spec.Coll) {
			p, err := a.Make(spec)
			if err != nil {
				last = err
				continue
			}
			made = append(made, p)
		}
		if len(made) == 0 {
			return nil, last
		}
		return made, nil
	}
	for _, name := range strings.Split(names, ",") {
		name = strings.TrimSpace(name)
		if i := slices.IndexFunc(files, func(f file) bool { return f.name == name }); i >= 0 {
			made = append(made, files[i].plan)
			continue
		}
		a, err := plans.Find(spec.Coll, name)
		if err != nil && plans.LooksLikeFile(name) {
			return nil, fmt.Errorf("--algo %s: there is no such file", name)
		}
		if err != nil {
			return nil, err
		}
		p, err := a.Make(spec)
		if err != nil {
			return nil, err
		}
		made = append(made, p)
	}
	return made, nil
}
