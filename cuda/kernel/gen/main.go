// Command gen compiles the kernels for devices. It writes the code, zkernels_*.gz, and the list of
// it, zkernels.go.
//
//	go generate ./cuda/kernel    compile where the list is of other sources or options, or of other code
//	make kernels                 compile, with the compiler of ci/requirements-nvrtc.txt
//	make kernels-check           compile, and compare with what is there
//	make test-generated          the same for the PTX and one architecture (-only)
//
// The compiler is NVRTC, of exactly one version. It needs no GPU and no CUDA toolkit, and gives the
// same bytes each time. Since that takes a minute, and a download of 90 MB, go generate only
// compares digests as long as nothing has changed.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	dir := flag.String("dir", ".", "folder of package kernel")
	library := flag.String("nvrtc", "libnvrtc.so.12", "the library of NVRTC "+version)
	always := flag.Bool("always", false, "compile in any case")
	check := flag.Bool("check", false, "compile, and compare instead of writing")
	only := flag.String("only", "", "compile for these, as compute_75,sm_90, and compare; of the others compare digests")
	flag.Parse()
	if err := run(*dir, *library, *only, *always, *check || *only != ""); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(dir, library, only string, always, check bool) error {
	s, err := readSources(dir)
	if err != nil {
		return err
	}
	stale := outdated(dir, s.digest())
	if !always && !check && stale == nil {
		return nil
	}
	wanted := targets()
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	images, err := compile(library, wanted, s)
	if err != nil {
		return fmt.Errorf("%w (%v; make kernels brings the compiler)", err, stale)
	}
	if check {
		there, err := os.ReadFile(filepath.Join(dir, list))
		if err = errors.Join(err, stale); err != nil {
			return err
		}
		for _, i := range images {
			if !bytes.Contains(there, []byte(i.row())) {
				return fmt.Errorf("%s is not what NVRTC %s gives now for %s; make kernels writes it", list, version, i.arch)
			}
		}
		return nil
	}
	for _, i := range images {
		if err := os.WriteFile(filepath.Join(dir, i.file()), i.packed(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, list), describe(s.digest(), images), 0o644)
}
