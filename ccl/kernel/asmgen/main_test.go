package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The committed files must be what the generator writes, and there must be no others.
func TestTheCommittedFilesAreTheGenerated(t *testing.T) {
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s differs from what asmgen writes now: go generate ./ccl/kernel", name)
		}
	}
	committed, err := filepath.Glob("../z*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range committed {
		if all[filepath.Base(path)] == nil {
			t.Errorf("%s is not written by asmgen any more: remove it", path)
		}
	}
}

// Every vector in flight must have its own registers, apart from the constants.
func TestRegistersDoNotClash(t *testing.T) {
	for _, v := range vectors {
		for _, c := range conversions(v) {
			if inFlight*3+len(c.constants) > v.registers {
				t.Errorf("%s needs more than %d registers", c.name, v.registers)
			}
		}
		for _, f := range families(v) {
			for _, k := range f.blocks() {
				working := k.unrolled()*k.body.own + k.body.shared
				kept := len(k.body.constants)
				if k.scales() {
					kept++
				}
				if k.anyLength() || k.uncached() {
					kept++
				}
				if working+kept > v.registers {
					t.Errorf("%s needs %d registers of %d", k.name, working+kept, v.registers)
				}
				if k.size*k.multiple() != k.body.step {
					t.Errorf("%s: a step of %d bytes is no multiple of %d", k.name, k.body.step, k.size)
				}
				if 64%k.body.step != 0 {
					t.Errorf("%s: a step of %d bytes does not divide a cache line", k.name, k.body.step)
				}
			}
		}
	}
}
