package ccl

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/internal/humanize"
)

// EnsureDefaults gives every option that is not set its default.
func (o *Options) EnsureDefaults() {
	for _, row := range optionTable {
		if row.get(o) == "" && row.Default != "" {
			row.set(o, row.Default)
		}
	}
}

// Validate returns an error that names an option with an invalid value, or nil.
func (o *Options) Validate() error {
	for _, row := range optionTable {
		if err := row.check(o); err != nil {
			return refused(row.Name, row.get(o), err)
		}
	}
	override, err := tune.ParseOverride(o.Algo)
	if err != nil {
		return refused("GOCCL_ALGO", o.Algo, err)
	}
	determinism := cmp.Or(o.Determinism, DefaultDeterminism)
	level := verify.Needed(determinism)
	for coll, name := range override {
		if a, err := algo.Find(coll, name); err == nil && coll.Reduces() && a.Level < int(level) {
			return fault.New(fault.Invalid,
				"GOCCL_ALGO=%v=%s has determinism level %d, GOCCL_DETERMINISM=%d asks for level %d", coll, name,
				a.Level, determinism, level)
		}
	}
	return nil
}

// refused is the error for the value of an option.
func refused(name, value string, why error) error {
	if quoted := strconv.Quote(value); strings.Contains(value, " ") || quoted != `"`+value+`"` {
		value = quoted
	}
	return fault.Wrap(fault.Invalid, why, "%s=%s", name, value)
}

// settled returns the options with all defaults, if they are valid.
func (o Options) settled() (Options, error) {
	o.EnsureDefaults()
	return o, o.Validate()
}

func (o NodeOptions) settled() (NodeOptions, error) {
	all, err := Options{NodeOptions: o}.settled()
	return all.NodeOptions, err
}

func (o GroupOptions) settled() (GroupOptions, error) {
	all, err := Options{GroupOptions: o}.settled()
	return all.GroupOptions, err
}

// String returns the text form: one NAME=value per line, in the order of names, without options
// that are not set.
func (o Options) String() string {
	var b strings.Builder
	for _, row := range optionTable {
		if v := row.get(&o); v != "" {
			fmt.Fprintf(&b, "%s=%s\n", row.Name, v)
		}
	}
	return b.String()
}

// agreed returns, as text, the options that must be the same on all ranks.
func (o GroupOptions) agreed() string {
	all := Options{GroupOptions: o}
	var pairs []string
	for _, row := range optionTable {
		if row.Scope == agreed {
			pairs = append(pairs, row.Name+"="+row.get(&all))
		}
	}
	return strings.Join(pairs, " ")
}

// ParseOptions parses the text form. Later lines win. The error for an unknown name suggests a
// known one, that for a value says what is wanted.
func ParseOptions(text string) (Options, error) {
	var o Options
	values := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if isServiceLink(name, value) {
			o.serviceLinks = append(o.serviceLinks, name)
			continue
		}
		if !ok || optionOf(name) == nil {
			return o, fault.New(fault.Invalid, "unknown option %s%s", name, suggest(name))
		}
		values[name] = value
	}
	for _, row := range optionTable {
		if err := row.set(&o, values[row.Name]); err != nil {
			return o, refused(row.Name, values[row.Name], err)
		}
	}
	return o, o.Validate()
}

// serviceLink matches variables by which Kubernetes tells all containers of a namespace of a
// Service named goccl or goccl-x (GOCCL_SERVICE_HOST, GOCCL_X_PORT_80_TCP_ADDR, …), with their
// values.
var serviceLink = regexp.MustCompile(`^GOCCL_(?:[A-Z0-9_]+_)?(?:` +
	`SERVICE_HOST=[0-9A-Fa-f.:]+|` +
	`SERVICE_PORT(?:_[A-Z0-9_]+)?=[0-9]+|` +
	`PORT(?:_[0-9]+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://.*|` +
	`PORT_[0-9]+_(?:TCP|UDP|SCTP)_(?:PROTO=(?:tcp|udp|sctp)|PORT=[0-9]+|ADDR=[0-9A-Fa-f.:]+))$`)

// isServiceLink reports whether a variable is none of goccl's, but one that Kubernetes has set.
// GOCCL_PORT may be either.
func isServiceLink(name, value string) bool {
	return (optionOf(name) == nil || name == "GOCCL_PORT") && serviceLink.MatchString(name+"="+value)
}

// warnOfServiceLinks says which variables were left out.
func (o *NodeOptions) warnOfServiceLinks(warn func(format string, args ...any)) {
	if n := len(o.serviceLinks); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" and %d more", n-1)
		}
		warn("%s%s: left alone; Kubernetes sets such variables for a Service whose name begins with goccl; "+
			"enableServiceLinks: false in the spec of the pod leaves them out", o.serviceLinks[0], more)
	}
}

// optionOf returns the row of an option, or nil.
func optionOf(name string) *option {
	for _, row := range optionTable {
		if row.Name == name {
			return row
		}
	}
	return nil
}

// suggest names the nearest option, or all of them.
func suggest(name string) string {
	var names []string
	for _, row := range optionTable {
		names = append(names, row.Name)
	}
	if nearest := humanize.DidYouMean(strings.ToUpper(name), names); nearest != "" {
		return nearest
	}
	return "; known: " + strings.Join(names, ", ")
}

// OptionDoc describes an option to users.
type OptionDoc struct{ Subject, Name, Default, Doc string }

// subjects are the options by subject, without GOCCL_.
var subjects = []struct{ heading, names string }{
	{"Algorithms and plans", "ALGO PLAN TUNE TUNE_OUTPUT COSTS TOPO VERIFY DETERMINISM FAST_BF16"},
	{"Waiting and failures", "TIMEOUT PEER_TIMEOUT WARN_AFTER SPIN_US BLOCKING_WAIT FUTURES"},
	{"Paths between ranks", "TRANSPORT SITE SOCKET_IFNAME SOCKET_FAMILY SOCKET_STREAMS SOCKET_CONGESTION PORT CHECKSUM"},
	{"Trust", "SECRET_FILE TLS"},
	{"RDMA", "IB_HCA IB_GID_INDEX IB_RETRY_CNT IB_SL IB_TC IB_TIMEOUT"},
	{"Memory", "BUFFSIZE REGISTERED"},
	{"CUDA", "CUDA_ROUTE CUDA_BUFFSIZE CUDA_GRAPHS CUDA_INTERPRET CUDA_REGISTERED"},
	{"What is told of a job", "DEBUG DEBUG_FILE DEBUG_FORMAT TOP RECORDER RECORD_FILE RECORD_SIGNAL"},
}

// OptionHelp returns all options for users, by subject.
func OptionHelp() (all []OptionDoc) {
	for _, s := range subjects {
		for name := range strings.FieldsSeq(s.names) {
			for _, row := range optionTable {
				if row.Name == "GOCCL_"+name {
					all = append(all, OptionDoc{s.heading, row.Name, row.Default, row.Doc})
				}
			}
		}
	}
	return all
}
