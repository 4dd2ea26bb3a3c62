package humanize

import (
	"strings"
	"testing"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "8": 8, "0008": 8, "8b": 8, "8B": 8, "1e6": 1e6, "0.4": 0, "0.5": 1, ".5K": 512,
		"4K": 4096, "4k": 4096, "4KiB": 4096, "4kib": 4096, "4KB": 4000, "4kb": 4000,
		"64M": 64 << 20, "64MiB": 64 << 20, "64MB": 64e6, "1.5M": 3 << 19, "1.6GB": 1.6e9,
		"2G": 2 << 30, "2g": 2 << 30, "2GiB": 2 << 30, "2GB": 2e9, "1T": 1 << 40, "1TiB": 1 << 40, "1TB": 1e12,
		"16T": 1 << 44, "17592186044416": 1 << 44, "8796093022207": 1<<43 - 1,
	} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "K", "KB", "B", "-1", "+1", "-1K", "1 K", " 1", "1K ", "1KK", "2MM", "1BK", "1Ki", "7Q", "x", "0x10",
		"1p4", "1_000", "1.2.3", ".", "e", "inf", "nan", "any", "17T", "17592186044417", "99999999999G", "1e300",
		"1e999",
	} {
		_, err := ParseSize(text)
		if err == nil || !strings.Contains(err.Error(), "want "+SizeForm) || !strings.HasPrefix(err.Error(), "size ") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestSizesAreReadAsTheyAreWritten(t *testing.T) {
	for size, want := range map[int64]string{
		0: "0", 1: "1", 1000: "1000", 1024: "1K", 1536: "1536", 3 << 20: "3M", 1 << 30: "1G", 1 << 44: "16T",
		1<<44 - 1: "17592186044415",
	} {
		text := FormatSize(size)
		if back, err := ParseSize(text); text != want || back != size || err != nil {
			t.Errorf("%d is written %s, want %s, and read as %d, %v", size, text, want, back, err)
		}
	}
	if got := FormatSize(1 << 50); got != "1024T" {
		t.Errorf("got %s", got)
	}
}
