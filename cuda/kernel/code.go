package kernel

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
)

//go:embed zkernels_*.gz
var files embed.FS

// image is code in one of the files. Numbers of architectures are ten times major plus minor.
type image struct {
	arch   int
	file   string
	bytes  int    // unpacked
	digest string // SHA-256 of the unpacked code
}

// tegra has the architectures of systems on a chip. Code for other devices of the same major
// version is not meant for them.
var tegra = map[int]bool{72: true, 87: true, 101: true}

// Code returns the code of all kernels for devices of a compute capability, as cuModuleLoadData
// takes it: machine code for the latest architecture of the same major version that is not newer,
// or else PTX, which the driver compiles. Callers share it, and do not change it.
func Code(major, minor int) ([]byte, error) {
	arch := 10*major + minor
	if arch < portable.arch {
		return nil, fault.New(fault.NotSupported, "the kernels need compute capability %d.%d or later, "+
			"and the device has %d.%d", portable.arch/10, portable.arch%10, major, minor)
	}
	return chosen(arch).code()
}

// unpacked is the code that was asked for, by file: each group of a process loads the same.
var unpacked = struct {
	sync.Mutex
	code map[string][]byte
}{code: map[string][]byte{}}

func (i image) code() ([]byte, error) {
	unpacked.Lock()
	defer unpacked.Unlock()
	if code, ok := unpacked.code[i.file]; ok {
		return code, nil
	}
	code, err := i.unpack()
	if err == nil {
		unpacked.code[i.file] = code
	}
	return code, err
}

// chosen returns the image for devices of an architecture that is not too old.
func chosen(arch int) image {
	best := portable
	for _, each := range images {
		if each.arch/10 == arch/10 && each.arch <= arch && !tegra[arch] {
			best = each
		}
	}
	return best
}

func (i image) unpack() ([]byte, error) {
	packed, err := files.ReadFile(i.file)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the code of the kernels is missing")
	}
	unpacked := bytes.NewBuffer(make([]byte, 0, i.bytes+bytes.MinRead))
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		_, err = io.Copy(unpacked, reader)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "%s cannot be unpacked", i.file)
	}
	return unpacked.Bytes(), nil
}
