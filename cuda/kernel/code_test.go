package kernel

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
)

// mostBytes bounds the code in the repository, and in every program that has it.
const mostBytes = 3 << 20

func TestImagesAreWhole(t *testing.T) {
	total := 0
	for _, i := range append(images, portable) {
		code, err := i.unpack()
		if err != nil {
			t.Error(err)
			continue
		}
		if digest := fmt.Sprintf("%x", sha256.Sum256(code)); len(code) != i.bytes || digest != i.digest {
			t.Errorf("%s: %d bytes with digest %s, want %d with %s", i.file, len(code), digest, i.bytes, i.digest)
		}
		packed, err := files.ReadFile(i.file)
		if err != nil {
			t.Error(err)
		}
		if !bytes.Equal(packed[4:8], make([]byte, 4)) {
			t.Errorf("%s has a time", i.file)
		}
		total += len(packed)
	}
	if total > mostBytes {
		t.Errorf("the code has %d bytes, at most %d", total, mostBytes)
	}
	if entries, err := files.ReadDir("."); err != nil || len(entries) != len(images)+1 {
		t.Errorf("%d files are embedded, of which %d are used (%v)", len(entries), len(images)+1, err)
	}
}

// The machine code has all functions, for the architecture that it is listed under, and nothing
// else. As many blocks as a launch has find their registers, and no thread needs more of the stack
// than for two addresses, which the compiler of NVIDIA puts there where branches meet again.
func TestMachineCode(t *testing.T) {
	for _, i := range images {
		code, err := i.unpack()
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint32(code[20:], 1) // in place of NVIDIA's version of ELF
		file, err := elf.NewFile(bytes.NewReader(code))
		if err != nil {
			t.Fatalf("%s: %v", i.file, err)
		}
		if file.Machine != 190 { // EM_CUDA
			t.Errorf("%s is for machine %v", i.file, file.Machine)
		}
		if flags := binary.LittleEndian.Uint32(code[48:]); !isFor(flags, i.arch) {
			t.Errorf("%s is not for sm_%d: flags %#x", i.file, i.arch, flags)
		}
		var names []string
		for _, s := range file.Sections {
			if name, ok := strings.CutPrefix(s.Name, ".text."); ok {
				names = append(names, name)
			}
		}
		if want := functionNames(); !slices.Equal(sorted(names), want) {
			t.Errorf("%s has %q, want %q", i.file, sorted(names), want)
		}
		registers, stacks, err := needs(file)
		if err != nil || len(registers) != len(names) || len(stacks) != len(names) {
			t.Fatalf("%s tells the registers of %d functions, the stacks of %d: %v",
				i.file, len(registers), len(stacks), err)
		}
		for symbol, n := range registers {
			if n*BlockSize*blocksEach > 1<<16 {
				t.Errorf("%s: symbol %d takes %d registers of a thread: %d blocks of %d do not fit on a multiprocessor",
					i.file, symbol, n, blocksEach, BlockSize)
			}
		}
		for symbol, n := range stacks {
			if n > mostStack {
				t.Errorf("%s: symbol %d has a stack of %d bytes", i.file, symbol, n)
			}
		}
	}
}

// isFor reads an architecture in the flags of machine code: in the lowest byte, or since sm_100 in
// the next.
func isFor(flags uint32, arch int) bool {
	if arch < 100 {
		return flags&0xff == uint32(arch)
	}
	return flags>>8&0xff == uint32(arch)
}

const mostStack = 16

// needs reads the attributes of functions: by symbol the number of registers and the bytes on the
// stack.
func needs(file *elf.File) (registers, stacks map[uint32]uint32, err error) {
	const value, registerCount, frameSize = 4, 0x2f, 0x11
	registers, stacks = map[uint32]uint32{}, map[uint32]uint32{}
	section := file.Section(".nv.info")
	if section == nil {
		return nil, nil, errors.New("there is no .nv.info")
	}
	data, err := section.Data()
	for len(data) >= 4 {
		format, attribute, n := data[0], data[1], binary.LittleEndian.Uint16(data[2:])
		data = data[4:]
		if format != value {
			continue
		}
		if int(n) > len(data) {
			return nil, nil, errors.New(".nv.info ends early")
		}
		if n == 8 {
			symbol, value := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
			switch attribute {
			case registerCount:
				registers[symbol] = value
			case frameSize:
				stacks[symbol] = value
			}
		}
		data = data[n:]
	}
	return registers, stacks, err
}

// The PTX has all functions, rounds to nearest, fuses nothing, and keeps subnormals.
func TestPortableCode(t *testing.T) {
	code, err := portable.unpack()
	if err != nil {
		t.Fatal(err)
	}
	if code[len(code)-1] != 0 {
		t.Error("the PTX does not end with a zero, as the driver expects")
	}
	if !bytes.Contains(code, fmt.Appendf(nil, "\n.target sm_%d\n", portable.arch)) {
		t.Errorf("the PTX is not for %d", portable.arch)
	}
	var names []string
	for _, m := range regexp.MustCompile(`\.entry (\w+)\(`).FindAllSubmatch(code, -1) {
		names = append(names, string(m[1]))
	}
	if want := functionNames(); !slices.Equal(sorted(names), want) {
		t.Errorf("the PTX has %q, want %q", sorted(names), want)
	}
	wrong := regexp.MustCompile(`(?m)^\s*(@\S+ )?(fma|mad\.rn|\S+\.ftz|\S+\.sat|\S+\.approx|(add|mul|sub)\.f|` +
		`ld\.(local|volatile)|\S+\.nc|call)\S*.*$`)
	if found := wrong.Find(code); found != nil {
		t.Errorf("the PTX has %q", bytes.TrimSpace(found))
	}
	for _, needed := range []string{"add.rn.f32", "mul.rn.f32", "add.rn.f64", "mul.rn.f64", "cvt.rn.f32.f64",
		"add.rn.f16x2", "mul.rn.f16x2", "cvt.f32.f16", "cvt.rn.f16.f32", "ld.global.v4.u32", "st.global.v4.u32"} {
		if !bytes.Contains(code, []byte("\t"+needed+" ")) {
			t.Errorf("the PTX has no %s", needed)
		}
	}
}

func functionNames() []string {
	var all []string
	for _, f := range Functions() {
		all = append(all, f.Name)
	}
	return sorted(all)
}

func sorted(names []string) []string {
	all := slices.Clone(names)
	slices.Sort(all)
	return all
}

func TestCodeForDevices(t *testing.T) {
	for _, each := range []struct {
		major, minor int
		file         string
	}{
		{7, 5, "sm_75"}, {8, 0, "sm_80"}, {8, 6, "sm_86"}, {8, 9, "sm_89"}, {9, 0, "sm_90"}, {10, 0, "sm_100"},
		{10, 3, "sm_100"}, {12, 0, "sm_120"}, {12, 1, "sm_120"},
		{8, 7, "compute_75"}, {10, 1, "compute_75"}, {11, 0, "compute_75"}, {13, 0, "compute_75"},
	} {
		if got := chosen(10*each.major + each.minor).file; got != "zkernels_"+each.file+".gz" {
			t.Errorf("compute capability %d.%d gets %s, want %s", each.major, each.minor, got, each.file)
		}
		if code, err := Code(each.major, each.minor); err != nil || len(code) == 0 {
			t.Errorf("compute capability %d.%d: %d bytes, %v", each.major, each.minor, len(code), err)
		}
	}
	for _, old := range [][2]int{{7, 2}, {7, 0}, {6, 1}} {
		if _, err := Code(old[0], old[1]); !errors.Is(err, fault.NotSupported) {
			t.Errorf("compute capability %d.%d: %v", old[0], old[1], err)
		}
	}
}
