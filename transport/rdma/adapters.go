package rdma

import (
	"slices"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// Adapters says which adapters, and which of their ports, may be used. The zero value allows all.
type Adapters struct {
	except bool
	exact  bool
	list   []pattern
}

// pattern is one of a list: a name, or what names begin with.
type pattern struct {
	name string
	port int // 0: all
}

const mostPort = 255

// ParseAdapters parses a list in the form of NCCL_IB_HCA: "mlx5" for all whose names begin so,
// "=mlx5_0:1,mlx5_1" for these names, the first with its port 1 only, "^mlx5_3" for all but these,
// "^=mlx5_3" for all but this name.
func ParseAdapters(text string) (Adapters, error) {
	var a Adapters
	rest := strings.TrimSpace(text)
	if rest == "" {
		return a, nil
	}
	rest, a.except = strings.CutPrefix(rest, "^")
	rest, a.exact = strings.CutPrefix(rest, "=")
	for part := range strings.SplitSeq(rest, ",") {
		name, port, hasPort := strings.Cut(strings.TrimSpace(part), ":")
		if a.exact { // also before each name, as for interfaces
			name = strings.TrimPrefix(name, "=")
		}
		each := pattern{name: name}
		if hasPort {
			number, err := strconv.ParseUint(port, 10, 8)
			if err != nil || number == 0 {
				return Adapters{}, fault.New(fault.Invalid, "rdma: adapter list %q: port %q is not a number from 1 to %d",
					text, port, mostPort)
			}
			each.port = int(number)
		}
		if name == "" || strings.ContainsFunc(name, notOfName) {
			return Adapters{}, fault.New(fault.Invalid, "rdma: adapter list %q: %q is not a name; write \"mlx5\" for all "+
				"whose names begin so, \"=mlx5_0:1,mlx5_1\" for names and ports, or \"^mlx5_3\" for all but these", text, part)
		}
		a.list = append(a.list, each)
	}
	return a, nil
}

// notOfName reports whether no name of an adapter has a character.
func notOfName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r))
}

// Allow reports whether a port of an adapter may be used.
func (a Adapters) Allow(name string, port int) bool {
	if len(a.list) == 0 {
		return true
	}
	listed := slices.ContainsFunc(a.list, func(each pattern) bool { return each.names(name, port, a.exact) })
	return listed != a.except
}

func (p pattern) names(name string, port int, exact bool) bool {
	named := name == p.name || !exact && strings.HasPrefix(name, p.name)
	return named && (p.port == 0 || p.port == port)
}

// place returns where in the list a port is named, and whether with its full name; lists of those
// to leave out name none.
func (a Adapters) place(name string, port int) (at int, full bool) {
	if a.except {
		return 0, false
	}
	for i, each := range a.list {
		if each.names(name, port, a.exact) {
			return i, name == each.name
		}
	}
	return 0, false
}

// String returns the form that ParseAdapters takes.
func (a Adapters) String() string {
	var b strings.Builder
	if a.except {
		b.WriteString("^")
	}
	if a.exact {
		b.WriteString("=")
	}
	for index, each := range a.list {
		if index > 0 {
			b.WriteString(",")
		}
		b.WriteString(each.name)
		if each.port > 0 {
			b.WriteString(":" + strconv.Itoa(each.port))
		}
	}
	return b.String()
}
