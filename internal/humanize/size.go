package humanize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// SizeForm describes how sizes are written in options, in tables and on the command line. Letters
// may be upper or lower case. A number may have a fraction; the size is rounded to whole bytes.
const SizeForm = "bytes, or a number with K, M, G or T (powers of 1024, also KiB and so on) or KB, MB, GB or TB (powers of 1000), up to 16T"

const maxSize = 1 << 44

// sizeUnits lists the units in the order in which ParseSize tries them at the end of a size.
var sizeUnits = []struct {
	suffix string
	factor float64
}{
	{"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}, {"TIB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

// ParseSize parses a number of bytes in the form that SizeForm describes.
func ParseSize(text string) (int64, error) {
	number, factor := strings.ToUpper(text), 1.0
	for _, u := range sizeUnits {
		if rest, found := strings.CutSuffix(number, u.suffix); found {
			number, factor = rest, u.factor
			break
		}
	}
	if strings.Trim(number, "0123456789.E") != "" { // no signs, no infinity, no hexadecimal digits
		return 0, refuse(text)
	}
	v, err := strconv.ParseFloat(number, 64)
	if v *= factor; err != nil || v > maxSize {
		return 0, refuse(text)
	}
	return int64(math.Round(v)), nil
}

func refuse(text string) error { return fmt.Errorf("size %q: want %s", text, SizeForm) }

// FormatSize formats a number of bytes in the largest power of 1024 of which it is a whole
// multiple, as tables do.
func FormatSize(bytes int64) string {
	units := []string{"", "K", "M", "G", "T"}
	for len(units) > 1 && bytes != 0 && bytes%1024 == 0 {
		bytes, units = bytes/1024, units[1:]
	}
	return strconv.FormatInt(bytes, 10) + units[0]
}
