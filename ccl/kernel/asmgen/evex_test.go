package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The wanted bytes are the output of GNU as 2.40 for each text.
func TestEncodingsAreThoseOfAnAssembler(t *testing.T) {
	bf16 := instruction{"VCVTNE2PS2BF16", 2, 3, 0x72, false}
	for _, c := range []struct {
		of                instruction
		second, first, to int
		text              string
		want              [6]byte
	}{
		{addF16, 4, 0, 0, "vaddph {rn-sae},%zmm4,%zmm0,%zmm0", [6]byte{0x62, 0xf5, 0x7c, 0x18, 0x58, 0xc4}},
		{addF16, 9, 20, 7, "vaddph {rn-sae},%zmm9,%zmm20,%zmm7", [6]byte{0x62, 0xd5, 0x5c, 0x10, 0x58, 0xf9}},
		{addF16, 31, 0, 0, "vaddph {rn-sae},%zmm31,%zmm0,%zmm0", [6]byte{0x62, 0x95, 0x7c, 0x18, 0x58, 0xc7}},
		{addF16, 0, 15, 31, "vaddph {rn-sae},%zmm0,%zmm15,%zmm31", [6]byte{0x62, 0x65, 0x04, 0x18, 0x58, 0xf8}},
		{mulF16, 17, 8, 12, "vmulph {rn-sae},%zmm17,%zmm8,%zmm12", [6]byte{0x62, 0x35, 0x3c, 0x18, 0x59, 0xe1}},
		{mulF16, 30, 29, 28, "vmulph {rn-sae},%zmm30,%zmm29,%zmm28", [6]byte{0x62, 0x05, 0x14, 0x10, 0x59, 0xe6}},
		{bf16, 1, 18, 27, "vcvtne2ps2bf16 %zmm1,%zmm18,%zmm27", [6]byte{0x62, 0x62, 0x6f, 0x40, 0x72, 0xd9}},
	} {
		if got := c.of.bytes(c.second, c.first, c.to); got != c.want {
			t.Errorf("%s: % x, want % x", c.text, got, c.want)
		}
	}
}

// decode decodes the register form of an EVEX instruction of three operands, without masking, bit
// by bit as the public format defines it. It shares no code with the encoder.
func decode(code [6]byte) (text string, err error) {
	bit := func(at, bit int) int { return int(code[at]) >> bit & 1 }
	number := func(bits ...int) (n int) {
		for _, b := range bits {
			n = n<<1 | b
		}
		return n
	}
	switch {
	case code[0] != 0x62:
		return "", fmt.Errorf("begins with %#x", code[0])
	case bit(1, 3) != 0 || bit(2, 2) != 1:
		return "", fmt.Errorf("a fixed bit is wrong")
	case number(bit(5, 7), bit(5, 6)) != 3:
		return "", fmt.Errorf("an operand is in memory")
	case bit(3, 7) != 0 || number(bit(3, 2), bit(3, 1), bit(3, 0)) != 0:
		return "", fmt.Errorf("it has a mask")
	case bit(2, 7) != 0:
		return "", fmt.Errorf("W is set")
	}
	to := number(1-bit(1, 4), 1-bit(1, 7), bit(5, 5), bit(5, 4), bit(5, 3))
	first := number(1-bit(3, 3), 1-bit(2, 6), 1-bit(2, 5), 1-bit(2, 4), 1-bit(2, 3))
	second := number(1-bit(1, 6), 1-bit(1, 5), bit(5, 2), bit(5, 1), bit(5, 0))
	kind := fmt.Sprintf("map%d.%d.%#x", number(bit(1, 2), bit(1, 1), bit(1, 0)), number(bit(2, 1), bit(2, 0)), code[4])
	mnemonic := map[string]string{
		"map5.0.0x58": "VADDPH", "map5.0.0x59": "VMULPH", "map2.3.0x72": "VCVTNE2PS2BF16",
	}[kind]
	width := number(bit(3, 6), bit(3, 5))
	switch {
	case mnemonic == "":
		return "", fmt.Errorf("unknown: %s", kind)
	case bit(3, 4) == 1: // the rounding mode takes the place of the width
		mnemonic += [...]string{".RN_SAE", ".RD_SAE", ".RU_SAE", ".RZ_SAE"}[width]
	case width != 2:
		return "", fmt.Errorf("width %d is not 512 bits", width)
	}
	return fmt.Sprintf("%s Z%d, Z%d, Z%d", mnemonic, second, first, to), nil
}

func TestEveryTripleOfRegistersDecodes(t *testing.T) {
	for _, i := range []instruction{addF16, mulF16} {
		for n := range 32 * 32 * 32 {
			second, first, to := n>>10, n>>5&31, n&31
			want := fmt.Sprintf("%s Z%d, Z%d, Z%d", i.mnemonic, second, first, to)
			if got, err := decode(i.bytes(second, first, to)); got != want || err != nil {
				t.Fatalf("%s became %s (%v)", want, got, err)
			}
		}
	}
}

// The bytes in the generated files must be the instruction in the comment above them.
func TestBytesAreWhatTheirCommentSays(t *testing.T) {
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	commented := regexp.MustCompile(`(?m)^\t// (V\S+) (.*)\n\t(BYTE .*)$`)
	for name, text := range all {
		matches := commented.FindAllStringSubmatch(string(text), -1)
		if lines := strings.Count(string(text), "\tBYTE "); lines != len(matches) {
			t.Errorf("%s has %d lines of bytes and %d comments over them", name, lines, len(matches))
		}
		for _, m := range matches {
			var code [6]byte
			bytes := strings.Split(strings.ReplaceAll(m[3], "BYTE $", ""), "; ")
			if len(bytes) != len(code) {
				t.Fatalf("%s: %s: %d bytes", name, m[0], len(bytes))
			}
			for i, b := range bytes {
				u, err := strconv.ParseUint(b, 0, 8)
				if err != nil {
					t.Fatal(err)
				}
				code[i] = byte(u)
			}
			if got, err := decode(code); got != m[1]+" "+m[2] || err != nil {
				t.Errorf("%s: the bytes under %s %s are %s (%v)", name, m[1], m[2], got, err)
			}
			found[m[1]]++
		}
	}
	for _, mnemonic := range []string{addF16.mnemonic, mulF16.mnemonic, "VCVTNE2PS2BF16"} {
		if found[mnemonic] == 0 {
			t.Errorf("no kernel has %s", mnemonic)
		}
	}
}
