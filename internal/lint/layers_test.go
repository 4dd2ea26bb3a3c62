package lint

import (
	"fmt"
	"strings"
)

// layers lists the packages from the bottom up, as ARCHITECTURE.md draws them. A package belongs to
// the longest entry that is the package itself or a folder above it, and may import packages in
// lower layers.
var layers = [][]string{
	{"ccl/dtype", "ccl/fault", "internal/humanize", "internal/signals"},
	{"internal/lint", "internal/netlab", "internal/scratch", "ccl/cost"},
	{"ccl/plan", "ccl/topo", "internal/logs", "internal/mem", "internal/park", "transport"},
	{"internal/agree", "internal/live", "ccl/member", "internal/record"},
	{"ccl/algo", "ccl/verify", "ccl/sim", "ccl/draw", "ccl/kernel", "ccl/flight",
		"transport/ring", "transport/outbox", "transport/unproven"},
	{"ccl/program"},
	{"ccl/tune", "ccl/exec", "transport/*", "cuda"},
	{"cuda/group", "cuda/gpudirect"},
	{"ccl"},
	{"pgbackend"},
	{"cabi"},
	{"cmd"},
}

// sideways lists the allowed imports within one layer. Any other two parts of the same layer must
// not know each other. Packages of one folder (exec and exec/p2p) are one part.
var sideways = map[[2]string]string{
	{"transport", "internal/park"}:      "a fabric rings the doorbell of the process",
	{"transport", "internal/mem"}:       "a session lends a window",
	{"ccl/topo", "internal/park"}:       "whether ranks outnumber their cores is what park counts",
	{"ccl/topo/probe", "internal/park"}: "how many cores there are is what park spins by",
	{"ccl/topo/probe", "internal/mem"}:  "huge pages and nodes are tried as segments are made",
	{"internal/mem", "internal/park"}:   "which node is near follows from the processors that a rank may use",
}

// layerOf returns the part that a package belongs to and its layer, or -1.
func layerOf(dir string) (part string, layer int) {
	layer = -1
	for index, parts := range layers {
		for _, each := range parts {
			folder, implementations := strings.CutSuffix(each, "/*")
			if implementations && !strings.HasPrefix(dir, folder+"/") || !within(dir, folder) ||
				len(each) <= len(part) {
				continue
			}
			part, layer = each, index
		}
	}
	if folder, ok := strings.CutSuffix(part, "/*"); ok { // a package in transport/shm would be part of it
		part = folder + "/" + strings.Split(strings.TrimPrefix(dir, folder+"/"), "/")[0]
	}
	return part, layer
}

func checkLayers(m *module) []finding {
	var all []finding
	for _, f := range m.files {
		part, layer := layerOf(f.dir)
		if layer < 0 {
			if !f.test && !within(f.dir, "tests", "examples", "ci", "python") {
				all = append(all, finding{f.path, f.line(f.ast.Name),
					fmt.Sprintf("package %s has no place in the layers", f.dir)})
			}
			continue
		}
		if f.test {
			continue
		}
		for _, imported := range f.imports() {
			if !imported.ours {
				continue
			}
			itsPart, itsLayer := layerOf(imported.path)
			_, listed := sideways[[2]string{f.dir, imported.path}]
			if itsLayer < layer && itsLayer >= 0 || itsPart == part || listed {
				continue
			}
			where := "above it"
			if itsLayer == layer {
				where = "beside it"
			}
			all = append(all, finding{f.path, imported.line,
				fmt.Sprintf("%s imports %s, which is %s", f.dir, imported.path, where)})
		}
	}
	return all
}

// importRule returns a check that finds the forbidden imports.
func importRule(forbidden func(f *goFile, imported importSpec) bool) func(*module) []finding {
	return func(m *module) []finding {
		var all []finding
		for _, f := range m.files {
			for _, imported := range f.imports() {
				if forbidden(f, imported) {
					all = append(all, finding{f.path, imported.line,
						fmt.Sprintf("%s imports %s", f.dir, imported.path)})
				}
			}
		}
		return all
	}
}

func cgoOutsideCABI(f *goFile, imported importSpec) bool {
	return imported.path == "C" && !within(f.dir, "cabi")
}

func unixElsewhere(f *goFile, imported importSpec) bool {
	return imported.path == "golang.org/x/sys/unix" && !f.test &&
		!strings.HasPrefix(f.dir, "transport/") &&
		!within(f.dir, "internal/live", "internal/mem", "internal/park", "ccl/topo/probe", "internal/netlab")
}

func testifyInLibrary(f *goFile, imported importSpec) bool {
	return strings.HasPrefix(imported.path, "github.com/stretchr/testify") && !f.test
}

func libraryForPeople(f *goFile, imported importSpec) bool {
	return strings.HasPrefix(imported.path, "github.com/spf13/") && !within(f.dir, "cmd")
}

func algorithmsKnown(f *goFile, imported importSpec) bool {
	return imported.ours && within(imported.path, "ccl/algo") && !f.test &&
		f.dir != "ccl" && !within(f.dir, "ccl/algo", "ccl/tune", "cmd")
}

func fabricsKnown(f *goFile, imported importSpec) bool {
	return imported.ours && strings.HasPrefix(imported.path, "transport/") && !f.test &&
		within(f.dir, "pgbackend", "cabi")
}
