package probe

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/mem"
)

// Host returns everything that the probes find out about this machine.
func Host() []topo.Finding {
	const root = "/"
	machine := Machine(root)
	findings := []topo.Finding{
		{Name: "system", State: topo.Info, Value: runtime.GOOS + "/" + runtime.GOARCH},
		processor(),
		cores(machine),
		cacheFinding(machine),
		nodeFinding(machine),
		homeFinding(mem.ProbeHome(root)),
		memory(machine),
		ratesFinding(KeptRates(cost.Folder())),
		pageFinding(machine, mem.ProbeHugePages(root)),
	}
	findings = append(findings, sharedMemory(), crossMemory(root))
	return append(findings, interfaces())
}

// features are the instruction sets by which kernels are chosen.
var features = []string{"avx2", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "asimd", "sve"}

// Processor returns the name of the processor, "" if it is not known, and what it can.
func Processor() (model string, flags map[string]bool) {
	flags = map[string]bool{}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for _, line := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags", "Features":
			for _, flag := range strings.Fields(value) {
				flags[flag] = true
			}
		}
	}
	return model, flags
}

func processor() topo.Finding {
	model, flags := Processor()
	var have []string
	for _, f := range features {
		if flags[f] {
			have = append(have, f)
		}
	}
	found := topo.Finding{Name: "processor", State: topo.OK,
		Value: strings.TrimSpace(model + " " + strings.Join(have, " "))}
	if runtime.GOARCH == "amd64" && runtime.GOOS == "linux" && !flags["avx2"] {
		found.State, found.Hint = topo.Missing, "without AVX2 reductions run in portable Go, several times slower"
	}
	return found
}

func interfaces() topo.Finding {
	found := topo.Finding{Name: "interfaces", State: topo.OK}
	all, err := net.Interfaces()
	if err != nil {
		return topo.Finding{Name: "interfaces", State: topo.Missing, Value: err.Error(),
			Hint: "ranks on other hosts cannot be reached"}
	}
	var parts []string
	outside := false
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addresses, _ := i.Addrs()
		var texts []string
		for _, a := range addresses {
			texts = append(texts, a.String())
		}
		outside = outside || i.Flags&net.FlagLoopback == 0 && len(texts) > 0
		parts = append(parts, fmt.Sprintf("%s (%s)", i.Name, strings.Join(texts, ", ")))
	}
	found.Value = strings.Join(parts, ", ")
	if !outside {
		found.State, found.Hint = topo.Missing, "only loopback is up: ranks on other hosts cannot be reached"
	}
	return found
}
