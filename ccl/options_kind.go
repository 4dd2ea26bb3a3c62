package ccl

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/internal/humanize"
	"github.com/goccl/goccl/internal/logs"
	"github.com/goccl/goccl/transport/rdma"
	"github.com/goccl/goccl/transport/tcp"
)

// kind is how the options of one kind are written, and which values they may have. Errors say what
// is wanted. The zero value of an option and the empty text mean "not set"; a kind never sees them,
// but for the zero value that a text such as "0" stands for.
type kind[T comparable] struct {
	python string // the type in Python
	parse  func(text string) (T, error)
	print  func(T) string
	check  func(T) error
}

// read parses a text and checks the value.
func (k kind[T]) read(text string) (T, error) {
	v, err := k.parse(text)
	if err == nil {
		err = k.check(v)
	}
	return v, err
}

func want(format string, args ...any) error { return fmt.Errorf("want "+format, args...) }

// onOff is 0 or 1; on is what 1 stands for.
func onOff(on bool) kind[bool] {
	return kind[bool]{python: "bool",
		parse: func(text string) (bool, error) {
			if text != "0" && text != "1" {
				return false, want("0 or 1")
			}
			return (text == "1") == on, nil
		},
		print: func(v bool) string {
			if v == on {
				return "1"
			}
			return "0"
		},
		check: func(bool) error { return nil },
	}
}

// number is a whole number within limits.
func number(least, most int) kind[int] {
	wanted := want("a number from %d to %d", least, most)
	return kind[int]{python: "int",
		parse: func(text string) (int, error) {
			n, err := strconv.Atoi(text)
			if err != nil {
				err = wanted
			}
			return n, err
		},
		print: strconv.Itoa,
		check: within(least, most, wanted),
	}
}

// within returns the check of limits.
func within[T int | time.Duration](least, most T, wanted error) func(T) error {
	return func(v T) error {
		if v < least || v > most {
			return wanted
		}
		return nil
	}
}

// size is a number of bytes within limits.
func size(least, most int) kind[int] {
	wanted := want("a size from %s to %s", humanize.FormatSize(int64(least)), humanize.FormatSize(int64(most)))
	return kind[int]{python: "int | str",
		parse: func(text string) (int, error) {
			n, err := humanize.ParseSize(text)
			if err != nil {
				err = want("%s", humanize.SizeForm)
			}
			return int(n), err
		},
		print: func(n int) string { return humanize.FormatSize(int64(n)) },
		check: within(least, most, wanted),
	}
}

// timeForm describes how times are written.
const timeForm = "a time longer than zero, such as 90, 1.5s or 5m"

// duration is a time of at least so much, in seconds or with a unit.
func duration(least time.Duration) kind[time.Duration] {
	wanted := want(timeForm)
	if least > 0 {
		wanted = want("a time of at least %v, such as 90, 2.5s or 5m", least)
	}
	return kind[time.Duration]{python: "timedelta | float | str",
		parse: func(text string) (time.Duration, error) {
			d, err := time.ParseDuration(text)
			if err != nil {
				d, err = time.ParseDuration(text + "s")
			}
			if err != nil {
				err = wanted
			}
			return d, err
		},
		print: time.Duration.String,
		check: within(max(least, 1), 1<<63-1, wanted),
	}
}

// micros is a time in whole microseconds, up to a limit.
func micros(most time.Duration) kind[time.Duration] {
	wanted := want("whole microseconds, up to %d", most.Microseconds())
	return kind[time.Duration]{python: "int | str",
		parse: func(text string) (time.Duration, error) {
			us, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				err = wanted
			}
			return time.Duration(us) * time.Microsecond, err
		},
		print: func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) },
		check: func(d time.Duration) error {
			if d <= 0 || d > most || d%time.Microsecond != 0 {
				return wanted
			}
			return nil
		},
	}
}

// zeroIsNone is a kind of which the text 0 means none, and so does any negative value: the zero
// value means the default. The form describes all of it.
func zeroIsNone[T int | time.Duration](k kind[T], form string) kind[T] {
	const none = -1
	wanted := want("%s", form)
	return kind[T]{python: k.python,
		parse: func(text string) (T, error) {
			v, err := k.parse(text)
			switch {
			case err != nil || v < 0:
				return 0, wanted
			case v == 0:
				return none, nil
			}
			return v, nil
		},
		print: func(v T) string {
			if v < 0 {
				return "0"
			}
			return k.print(v)
		},
		check: func(v T) error {
			if v >= 0 && k.check(v) != nil {
				return wanted
			}
			return nil
		},
	}
}

// index is a number from 0 to a limit, or -1 for a choice, which is nil.
func index(most int) kind[*int] {
	wanted := want("-1, or an index from 0 to %d", most)
	return kind[*int]{python: "int",
		parse: func(text string) (*int, error) {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, wanted
			}
			if n == rdma.AnyGID {
				return nil, nil
			}
			return &n, nil
		},
		print: func(n *int) string { return strconv.Itoa(*n) },
		check: func(n *int) error {
			if n != nil && (*n < 0 || *n > most) {
				return wanted
			}
			return nil
		},
	}
}

// word is one of some words, in the spelling that spell makes of a text.
func word(spell func(string) string, words ...string) kind[string] {
	last := len(words) - 1
	wanted := want("%s or %s", strings.Join(words[:last], ", "), words[last])
	return kind[string]{python: "str",
		parse: func(text string) (string, error) { return spell(text), nil },
		print: asIs,
		check: func(v string) error {
			if !slices.Contains(words, v) {
				return wanted
			}
			return nil
		},
	}
}

func asIs(text string) string { return text }

// signalName takes names with SIG too.
func signalName(text string) string {
	if strings.EqualFold(text, "none") {
		return "none"
	}
	return strings.TrimPrefix(strings.ToUpper(text), "SIG")
}

// familyName takes the names of NCCL_SOCKET_FAMILY too.
func familyName(text string) string {
	text = strings.ToLower(text)
	if family, is := map[string]string{"af_inet": "ipv4", "af_inet6": "ipv6"}[text]; is {
		return family
	}
	return text
}

// text is anything that passes the check, or anything at all without one.
func text(check func(string) error) kind[string] {
	if check == nil {
		check = func(string) error { return nil }
	}
	return kind[string]{python: "str",
		parse: func(v string) (string, error) { return v, nil }, print: asIs, check: check}
}

func checkAlgo(v string) error {
	_, err := tune.ParseOverride(v)
	return err
}

func checkDebugFile(v string) error {
	_, err := logs.Expand(v)
	return err
}

func checkAdapters(v string) error {
	_, err := rdma.ParseAdapters(v)
	return err
}

// congestionName matches names that Linux may have: it cuts off what is longer.
var congestionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,15}$`)

func checkCongestion(v string) error {
	if !congestionName.MatchString(v) {
		return want("%s, or the name of a congestion control, such as cubic", tcp.SystemCongestion)
	}
	return nil
}

// siteName matches the names of sites.
var siteName = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,63}$`)

func checkSite(v string) error {
	if !siteName.MatchString(v) {
		return want("a name of at most 63 letters, digits, dots, dashes, slashes or colons, such as eu-west-1")
	}
	return nil
}

// ports is a port or a range of ports.
func ports() kind[string] {
	k := text(func(v string) error {
		_, _, err := portsOf(v)
		return err
	})
	k.python = "int | str"
	return k
}

// portsOf returns the first and the last port of a range, 0 for any.
func portsOf(v string) (first, last int, err error) {
	if v == "" {
		return 0, 0, nil
	}
	from, to, isRange := strings.Cut(v, "-")
	if first, err = strconv.Atoi(from); err == nil {
		last = first
		if isRange {
			last, err = strconv.Atoi(to)
		}
	}
	if err != nil || first < 1 || last < first || last > 1<<16-1 {
		return 0, 0, want("a port or a range of ports; write 29600 or 29600-29700")
	}
	return first, last, nil
}
