package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// architectures of the machine code. The first is that of the PTX, too.
var architectures = []int{75, 80, 86, 89, 90, 100, 120}

// targets are those of all code, the PTX first.
func targets() []string {
	all := []string{fmt.Sprintf("compute_%d", architectures[0])}
	for _, arch := range architectures {
		all = append(all, fmt.Sprintf("sm_%d", arch))
	}
	return all
}

// options of the compiler beside the architecture: nothing is fused, and subnormals are kept.
var options = []string{"-std=c++17", "-fmad=false", "-ftz=false"}

// program is the source that includes all others.
const program = "kernels.cu"

// sources are the texts by their names.
type sources map[string]string

// readSources reads the files that the code depends on; host.h is not among them.
func readSources(dir string) (sources, error) {
	s := sources{}
	for _, pattern := range []string{"*.cu", "*.h"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if name := filepath.Base(path); name != "host.h" {
				s[name] = string(text)
			}
		}
	}
	if s[program] == "" {
		return nil, fmt.Errorf("%s is not in %s", program, dir)
	}
	return s, nil
}

func (s sources) names() []string {
	var all []string
	for name := range s {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}

// digest identifies everything that decides on the code, except for the compiler.
func (s sources) digest() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %q\n", architectures, options)
	for _, name := range s.names() {
		fmt.Fprintf(&b, "%s %d\n%s", name, len(s[name]), s[name])
	}
	return digestOf([]byte(b.String()))
}
