package driver

import (
	"errors"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/conformance"
)

// graphs makes graphs with the driver of this machine, as the owner of streams does. It implements
// conformance.Graphs.
type graphs struct {
	begin       func(stream uintptr, mode int32) int32
	end         func(stream uintptr, graph *uintptr) int32
	instantiate func(executable *uintptr, graph uintptr, flags uint64) int32
	launch      func(executable, stream uintptr) int32
	destroyExec func(executable uintptr) int32
	destroy     func(graph uintptr) int32
}

// openGraphs returns nil, and says so, for a library that makes no graphs: CUDA's does.
func openGraphs(t *testing.T) conformance.Graphs {
	t.Helper()
	handle, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	g := &graphs{}
	for name, function := range map[string]any{
		"cuStreamBeginCapture_v2": &g.begin, "cuStreamEndCapture": &g.end,
		"cuGraphInstantiateWithFlags": &g.instantiate, "cuGraphLaunch": &g.launch,
		"cuGraphExecDestroy": &g.destroyExec, "cuGraphDestroy": &g.destroy,
	} {
		if _, err := purego.Dlsym(handle, name); err != nil {
			t.Logf("no graphs: %v", err)
			return nil
		}
		purego.RegisterLibFunc(function, handle, name)
	}
	return g
}

func (g *graphs) Begin(_ cuda.Driver, s cuda.Stream) error {
	return failed("cuStreamBeginCapture", g.begin(s.Native(), captureRelaxed))
}

// End destroys the graph itself: what can be launched does not need it.
func (g *graphs) End(_ cuda.Driver, s cuda.Stream) (conformance.Graph, error) {
	var graph uintptr
	made := &instance{graphs: g}
	if err := failed("cuStreamEndCapture", g.end(s.Native(), &graph)); err != nil {
		return nil, err
	}
	err := failed("cuGraphInstantiateWithFlags", g.instantiate(&made.handle, graph, 0))
	return made, errors.Join(err, failed("cuGraphDestroy", g.destroy(graph)))
}

// instance is a graph that can be launched.
type instance struct {
	*graphs
	handle uintptr
	gone   bool
}

func (i *instance) Launch(s cuda.Stream) error {
	return failed("cuGraphLaunch", i.launch(i.handle, s.Native()))
}

func (i *instance) Destroy() error {
	if i.gone {
		return nil
	}
	i.gone = true
	return failed("cuGraphExecDestroy", i.destroyExec(i.handle))
}

func failed(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return cuda.Failed(call, int(code), unknownName)
}
