package network

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// unit is a suffix and its factor. The factor is a fraction of two exact numbers, so that 500ns is
// the number nearest to 5e-7.
type unit struct {
	suffix      string
	times, over float64
}

// Longer suffixes come first.
var times = []unit{{"ns", 1, 1e9}, {"us", 1, 1e6}, {"µs", 1, 1e6}, {"ms", 1, 1e3}, {"s", 1, 1}}

var bandwidths = []unit{
	{"kbit", 1e3, 8}, {"mbit", 1e6, 8}, {"gbit", 1e9, 8}, {"tbit", 1e12, 8}, {"bit", 1, 8},
	{"kib", 1 << 10, 1}, {"mib", 1 << 20, 1}, {"gib", 1 << 30, 1}, {"tib", 1 << 40, 1},
	{"kb", 1e3, 1}, {"mb", 1e6, 1}, {"gb", 1e9, 1}, {"tb", 1e12, 1}, {"b", 1, 1},
}

// ParseTime parses a time such as "1us", "500ns" or "0".
func ParseTime(s string) (float64, error) {
	v, ok := scaled(s, times)
	if !ok {
		return 0, fmt.Errorf("time %s: write a number with ns, us, ms or s, 0 or more", quote(s))
	}
	return v, nil
}

// parseBandwidth parses a bandwidth such as "25GB", "600GB/s" or "100Gbit".
func parseBandwidth(s string) (float64, error) {
	v, ok := scaled(strings.TrimSuffix(strings.ToLower(s), "/s"), bandwidths)
	if !ok || v == 0 {
		return 0, fmt.Errorf("bandwidth %s: write a number with GB, GiB or Gbit (or M, K, T), more than 0", quote(s))
	}
	return v, nil
}

func scaled(s string, units []unit) (float64, bool) {
	by := unit{times: 1, over: 1}
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, by = rest, u
			break
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	v = v * by.times / by.over
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}

func formatAlpha(v float64) string     { return shortest(v, times, "us", "ns", "ms") }
func formatBandwidth(v float64) string { return shortest(v, bandwidths, "GB", "MB", "KB", "B") + "/s" }

// shortest formats a value in the unit in which that is shortest, so that it is read back exactly.
// The unit that comes first is preferred.
func shortest(v float64, units []unit, suffixes ...string) string {
	best := strconv.FormatFloat(v, 'g', -1, 64) + units[len(units)-1].suffix
	if v == 0 {
		return best
	}
	for _, suffix := range suffixes {
		by := units[slices.IndexFunc(units, func(u unit) bool { return strings.EqualFold(u.suffix, suffix) })]
		text := strconv.FormatFloat(v/by.times*by.over, 'g', 15, 64) + suffix
		if back, ok := scaled(strings.ToLower(text), units); ok && back == v && len(text) < len(best) {
			best = text
		}
	}
	return best
}
