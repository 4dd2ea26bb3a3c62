package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The code in the repository is that of the sources, as far as digests tell.
func TestCodeIsOfTheSources(t *testing.T) {
	s, err := readSources("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := outdated("..", s.digest()); err != nil {
		t.Errorf("%v; make kernels compiles them", err)
	}
}

func TestOutdatedFindsChanges(t *testing.T) {
	dir := t.TempDir()
	images := []image{{"compute_75", []byte("ptx")}}
	for range architectures {
		images = append(images, image{"sm_75", []byte("machine code")})
	}
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range images {
		write(i.file(), i.packed())
	}
	write(list, describe("abc", images))
	expect := func(sources, want string) {
		t.Helper()
		err := outdated(dir, sources)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("outdated: %v, want %q", err, want)
		}
	}
	expect("abc", "")
	expect("abd", "other sources")
	write("zkernels_sm_75.gz", image{"", []byte("machine codf")}.packed())
	expect("abc", "other code")
	write("zkernels_sm_75.gz", []byte("machine code"))
	expect("abc", "zkernels_sm_75.gz: ")
	if err := os.Remove(filepath.Join(dir, "zkernels_sm_75.gz")); err != nil {
		t.Fatal(err)
	}
	expect("abc", "no such file")
	write(list, describe("abc", images[:2]))
	expect("abc", "has 2 images")
}

// Every source counts but host.h, and so do names.
func TestDigestCountsSources(t *testing.T) {
	s, err := readSources("..")
	if err != nil {
		t.Fatal(err)
	}
	if s["host.h"] != "" || s["element.h"] == "" || s["reduce.cu"] == "" {
		t.Errorf("sources are %q", s.names())
	}
	before := s.digest()
	for _, name := range s.names() {
		text := s[name]
		s[name] = text + "\n"
		if s.digest() == before {
			t.Errorf("a change of %s is not noticed", name)
		}
		s[name] = text
	}
}
