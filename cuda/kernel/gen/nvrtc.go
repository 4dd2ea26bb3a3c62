package main

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// version of NVRTC, which its PTX says, too; ci/requirements-nvrtc.txt has the same. Code of 12.x
// runs with every driver of 12.x and later, and 12.9 is the last that knows all architectures from
// 7.5 to 12.0.
const version = "12.9.86"

// nvrtc is the open library; the results are numbers of nvrtcResult.
type nvrtc struct {
	createProgram func(p *uintptr, text, name string, n int32, headers, names unsafe.Pointer) int32
	compile       func(p uintptr, n int32, options unsafe.Pointer) int32
	logSize       func(p uintptr, n *uint64) int32
	log           func(p uintptr, to unsafe.Pointer) int32
	cubinSize     func(p uintptr, n *uint64) int32
	cubin         func(p uintptr, to unsafe.Pointer) int32
	ptxSize       func(p uintptr, n *uint64) int32
	ptx           func(p uintptr, to unsafe.Pointer) int32
	destroy       func(p *uintptr) int32
}

func open(path string) (*nvrtc, error) {
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	n := &nvrtc{}
	for name, function := range map[string]any{
		"nvrtcCreateProgram": &n.createProgram, "nvrtcCompileProgram": &n.compile,
		"nvrtcGetProgramLogSize": &n.logSize, "nvrtcGetProgramLog": &n.log,
		"nvrtcGetCUBINSize": &n.cubinSize, "nvrtcGetCUBIN": &n.cubin,
		"nvrtcGetPTXSize": &n.ptxSize, "nvrtcGetPTX": &n.ptx, "nvrtcDestroyProgram": &n.destroy,
	} {
		purego.RegisterLibFunc(function, library, name)
	}
	return n, nil
}

// compile returns the code for some targets, the first of which is that of the PTX.
func compile(library string, targets []string, s sources) ([]image, error) {
	n, err := open(library)
	if err != nil {
		return nil, err
	}
	images, errs := make([]image, len(targets)), make([]error, len(targets))
	free := make(chan bool, runtime.NumCPU())
	var all sync.WaitGroup
	for index, target := range targets {
		all.Go(func() {
			free <- true
			defer func() { <-free }()
			size, get := n.cubinSize, n.cubin
			if index == 0 {
				size, get = n.ptxSize, n.ptx
			}
			code, err := n.build(s, target, size, get)
			if err != nil {
				errs[index] = fmt.Errorf("%s: %w", target, err)
			}
			images[index] = image{target, code}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if !bytes.Contains(images[0].code, []byte("V"+version)) {
		return nil, fmt.Errorf("%s is not NVRTC %s", library, version)
	}
	return images, nil
}

func (n *nvrtc) build(s sources, target string, size func(uintptr, *uint64) int32,
	get func(uintptr, unsafe.Pointer) int32) ([]byte, error) {
	var p uintptr
	names := s.names()
	var texts []string
	for _, name := range names {
		texts = append(texts, s[name])
	}
	headers, includes := newStrings(texts), newStrings(names)
	if code := n.createProgram(&p, s[program], program, int32(len(names)), headers.at(), includes.at()); code != 0 {
		return nil, fmt.Errorf("nvrtcCreateProgram: %d", code)
	}
	defer n.destroy(&p)
	given := newStrings(append([]string{"--gpu-architecture=" + target}, options...))
	code := n.compile(p, int32(len(given)), given.at())
	runtime.KeepAlive(headers)
	runtime.KeepAlive(includes)
	runtime.KeepAlive(given)
	if code != 0 {
		log, _ := take(p, n.logSize, n.log)
		return nil, fmt.Errorf("nvrtcCompileProgram: %d\n%s", code, log)
	}
	return take(p, size, get)
}

// take returns what a pair of functions tells of a program.
func take(p uintptr, size func(uintptr, *uint64) int32, get func(uintptr, unsafe.Pointer) int32) ([]byte, error) {
	var n uint64
	if code := size(p, &n); code != 0 || n == 0 {
		return nil, fmt.Errorf("size %d, result %d", n, code)
	}
	b := make([]byte, n)
	if code := get(p, unsafe.Pointer(&b[0])); code != 0 {
		return nil, fmt.Errorf("result %d", code)
	}
	return b, nil
}

// cStrings are strings as an array of C.
type cStrings []*byte

func newStrings(from []string) cStrings {
	var all cStrings
	for _, s := range from {
		all = append(all, &append([]byte(s), 0)[0])
	}
	return all
}

func (c cStrings) at() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(c)) }
