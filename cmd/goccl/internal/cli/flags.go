package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/internal/humanize"
)

// value is a flag whose text a function parses.
type value[T any] struct {
	to         *T
	parse      func(string) (T, error)
	kind, text string
}

func (v *value[T]) String() string { return v.text }
func (v *value[T]) Type() string   { return v.kind }

func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err == nil {
		*v.to, v.text = parsed, text
	}
	return err
}

// Flag adds a flag whose value a function parses; kind is what the help calls the value. name may
// have a short form, as n,ranks.
func Flag[T any](f *pflag.FlagSet, name, kind, byDefault, usage string, parse func(string) (T, error)) *T {
	short, long, both := strings.Cut(name, ",")
	if !both {
		short, long = "", name
	}
	v := &value[T]{to: new(T), parse: parse, kind: kind, text: byDefault}
	if byDefault != "" {
		if err := v.Set(byDefault); err != nil {
			panic(fmt.Sprintf("the default of --%s: %v", long, err)) // cannot happen: tests make all commands
		}
	}
	f.VarP(v, long, short, usage)
	return v.to
}

// Text is the parser of a flag that takes any text.
func Text(text string) (string, error) { return text, nil }

// Number returns the parser of numbers in a range; a limit of 0 for most is none.
func Number(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return 0, errors.New("want a whole number")
		case most == 0 && n < least:
			return 0, fmt.Errorf("want %d or more", least)
		case most > 0 && (n < least || n > most):
			return 0, fmt.Errorf("want %d to %d", least, most)
		}
		return n, nil
	}
}

// Duration returns the parser of times of at least so much.
func Duration(least time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err == nil && d < least {
			err = fmt.Errorf("want %v or more", least)
		}
		return d, err
	}
}

// Numbers returns the parser of lists of numbers in a range, as 2,4,8 or 1-64. The result is in
// ascending order.
func Numbers(least, most int) func(string) ([]int, error) {
	return func(text string) (all []int, err error) {
		for word := range strings.SplitSeq(text, ",") {
			first, last, both := strings.Cut(strings.TrimSpace(word), "-")
			if !both {
				last = first
			}
			low, err1 := strconv.Atoi(first)
			high, err2 := strconv.Atoi(last)
			if err1 != nil || err2 != nil || low < least || high < low || high > most {
				return nil, fmt.Errorf("want numbers from %d to %d, as 2,4,8 or %d-%d", least, most, least, min(most, 64))
			}
			for n := low; n <= high; n++ {
				all = append(all, n)
			}
		}
		slices.Sort(all)
		return slices.Compact(all), nil
	}
}

// Names returns the parser of lists of names, of those that there are.
func Names(known []string) func(string) ([]string, error) {
	return func(list string) (all []string, err error) {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.TrimSpace(name)
			if !slices.Contains(known, name) {
				return nil, fmt.Errorf("there is no %q, only %s%s",
					name, strings.Join(known, ", "), humanize.DidYouMean(name, known))
			}
			all = append(all, name)
		}
		return all, nil
	}
}

// Sizes are numbers of bytes and ranges of them.
type Sizes []struct{ low, high int64 }

// ParseSizes parses "1K,1.6GB" or "1K..1G".
func ParseSizes(text string) (all Sizes, err error) {
	for word := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(word), "..")
		low, err := humanize.ParseSize(lo)
		if err != nil {
			return nil, err
		}
		high := low
		if isRange {
			if high, err = humanize.ParseSize(hi); err != nil {
				return nil, err
			}
			if high < low {
				return nil, fmt.Errorf("%d to %d is no range", low, high)
			}
		}
		all = append(all, struct{ low, high int64 }{low, high})
	}
	return all, nil
}

// Each returns the sizes; in a range, each is factor times the one before, but the last, which is
// the end of the range.
func (s Sizes) Each(factor int) (all []int64) {
	for _, r := range s {
		size := r.low
		for ; size > 0 && size <= r.high/int64(factor); size *= int64(factor) {
			all = append(all, size)
		}
		all = append(all, size)
		if size < r.high {
			all = append(all, r.high)
		}
	}
	return all
}

// Ends returns the smallest and the largest of the sizes, with the ends of ranges.
func (s Sizes) Ends() (least, most int64) {
	least = s[0].low
	for _, r := range s {
		least, most = min(least, r.low), max(most, r.high)
	}
	return least, most
}

// SizeAndFactor adds the two flags.
func SizeAndFactor(f *pflag.FlagSet, byDefault string, factor int) (*Sizes, *int) {
	return Flag(f, "size", "SIZES", byDefault, "sizes of the vector in bytes, as 64K or 1K,1M, or a range MIN..MAX", ParseSizes),
		Flag(f, "factor", "N", strconv.Itoa(factor), "in a range, each size is so many times the one before", Number(2, 0))
}

// ParseCollective parses the name of a collective that has plans.
func ParseCollective(name string) (dtype.Collective, error) {
	coll, err := dtype.ParseCollective(name)
	if err == nil {
		if !coll.Valid() {
			return coll, fmt.Errorf("%v has no plans; these have: %v", coll, dtype.Collectives())
		}
		return coll, nil
	}
	var having []string
	for _, c := range dtype.Collectives() {
		if _, failed := algo.Find(c, name); failed == nil {
			having = append(having, c.String()+"/"+name)
		}
	}
	if having != nil {
		return coll, fmt.Errorf("%w; %s is an algorithm: %s", err, name, strings.Join(having, ", "))
	}
	return coll, fmt.Errorf("%w%s", err, humanize.DidYouMean(name, Collectives()))
}

// Collectives returns the names of the collectives that have plans.
func Collectives() []string { return texts(dtype.Collectives()) }

// ParseShape parses a shape such as 4x2.
func ParseShape(text string) (shape plan.Shape, err error) {
	words := strings.Split(text, "x")
	for i, word := range words {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > plan.MaxRanks || len(words) > plan.MaxLevels {
			return plan.Shape{}, fmt.Errorf("want up to %d numbers, innermost level first, as 4x2", plan.MaxLevels)
		}
		shape[i] = n
	}
	return shape, nil
}

// RootRank adds the flag.
func RootRank(f *pflag.FlagSet) *int {
	return Flag(f, "root", "RANK", "0", "root of rooted collectives", Number(0, 0))
}

// Shape adds the flag.
func Shape(f *pflag.FlagSet) *plan.Shape {
	return Flag(f, "shape", "SHAPE", "", "grid of the ranks, as 4x2 or 2x2x2, the innermost level first", ParseShape)
}

// Transport adds the flag; empty is what GOCCL_TRANSPORT says.
func Transport(f *pflag.FlagSet, byDefault string) *string {
	return Flag(f, "transport", "NAME", byDefault, "auto, shm, rdma or tcp", Text)
}

// Output adds the flag for the file to write.
func Output(f *pflag.FlagSet) *string {
	return Flag(f, "o,output", "FILE", "-", "file to write; - is standard output", Text)
}

// JSON adds the flag.
func JSON(f *pflag.FlagSet, of string) *bool { return f.Bool("json", false, "print JSON: "+of) }

// completeFlags completes the values of the flags that have a choice: a name means the same
// everywhere.
func completeFlags(c *cobra.Command) {
	algorithms := []string{"all"}
	for _, a := range algo.All() {
		algorithms = append(algorithms, a.Name)
	}
	slices.Sort(algorithms)
	for name, values := range map[string][]string{
		"op": Collectives(), "dtype": texts(dtype.Types()), "redop": texts(dtype.Ops()),
		"transport": {"auto", "shm", "rdma", "tcp"}, "format": {"text", "json"}, "algo": slices.Compact(algorithms),
	} {
		if c.Flags().Lookup(name) != nil {
			c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

func texts[T fmt.Stringer](all []T) (names []string) {
	for _, each := range all {
		names = append(names, each.String())
	}
	return names
}
