package flight

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// The keys of a record that torch's recorder does not write.
const (
	WrittenKey  = "time_written_ns" // of the record
	OperatorKey = "operator"        // of operations
	RootKey     = "root"
	TagKey      = "tag"
)

// TorchTypes are torch's names of the element types.
var TorchTypes = map[dtype.Type]string{
	dtype.F64: "Double", dtype.F32: "Float", dtype.F16: "Half", dtype.BF16: "BFloat16",
	dtype.I8: "Char", dtype.U8: "Byte", dtype.I16: "Short", dtype.U16: "UInt16", dtype.I32: "Int",
	dtype.U32: "UInt32", dtype.I64: "Long", dtype.U64: "UInt64", dtype.Bool: "Bool",
	dtype.C64: "ComplexFloat", dtype.C128: "ComplexDouble", dtype.F8E4M3: "Float8_e4m3fn",
	dtype.F8E5M2: "Float8_e5m2"}

// typeNames are goccl's names of the element types, by torch's.
var typeNames = func() map[string]string {
	names := map[string]string{}
	for typ, name := range TorchTypes {
		names[name] = typ.String()
	}
	return names
}()

// Record is what one rank has left.
type Record struct {
	File    string
	Rank    int // in the whole job
	Written time.Time
	ours    bool // written by goccl, which knows which operations have failed
	groups  map[string]members
	entries []entry
	looked  int // at numbers in lists: a pickle may name one long list many times
	texts   map[string]string
}

// members are the ranks of a group, as a record has them.
type members struct {
	description string
	ranks       []int // in the whole job, by rank of the group
}

// The states of an operation.
const (
	underWay = iota
	ended
	failed
)

// entry is an operation of a rank.
type entry struct {
	group   string
	name    string // "all_reduce"; of messages with the ranks in the group: "send 0->1"
	id      int64  // counts the operations of the group
	seq     int64  // among the collectives, or the messages
	message bool
	typ     string
	in, out int64 // elements
	op      string
	root    int64 // -1: unknown
	tag     int64 // the same
	state   int
	begun   time.Time
	over    time.Time // zero if it has not ended well, or so soon that the end was not timed

	// See classify.
	agreed int64 // elements, of which all ranks must have the same number; -1: they need not
	joint  bool  // it ends on no rank before all ranks have called it
}

const (
	mostBytes = 256 << 20 // of a file
)

// ReadFile reads the record of a rank, whose number the file's name ends with.
func ReadFile(path string) (*Record, error) {
	_, rank, ok := numbered(path)
	if !ok {
		return nil, fault.New(fault.Invalid, "%s: the name of a record ends with the number of its rank", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "a record")
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(file, mostBytes+1))
	}
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "a record")
	}
	if len(text) > mostBytes {
		return nil, fault.New(fault.Invalid, "%s has more than %d bytes", path, mostBytes)
	}
	r, err := Parse(string(text))
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s is not a record: %v", path, err)
	}
	r.File, r.Rank = path, rank
	if r.Written.IsZero() {
		r.Written = info.ModTime()
	}
	return r, nil
}

// numbered splits the name of a record into what all of them begin with, and the rank.
func numbered(path string) (prefix string, rank int, ok bool) {
	name := filepath.Base(path)
	prefix = strings.TrimRight(name, "0123456789")
	rank, err := strconv.Atoi(name[len(prefix):])
	return prefix, rank, err == nil
}

// Find returns the records in a folder: the files whose names are a prefix and a number. Without a
// prefix all must have the same.
func Find(folder, prefix string) ([]string, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "a folder with records")
	}
	found := map[string][]string{}
	var prefixes []string
	for _, f := range files {
		with, _, ok := numbered(f.Name())
		if !ok || f.IsDir() || prefix != "" && with != prefix {
			continue
		}
		if found[with] == nil {
			prefixes = append(prefixes, with)
		}
		found[with] = append(found[with], filepath.Join(folder, f.Name()))
	}
	switch {
	case len(found) == 0:
		return nil, fault.New(fault.Invalid, "%s has no records: no file is named %sRANK", folder, prefix)
	case len(found) > 1:
		return nil, fault.New(fault.Invalid, "%s has files with several names: %s; choose with --prefix",
			folder, strings.Join(prefixes, "RANK, ")+"RANK")
	}
	return found[prefixes[0]], nil
}

// Parse reads a record. An error says at which byte.
func Parse(text string) (*Record, error) {
	value, err := unpickle(text)
	if err != nil {
		return nil, err
	}
	all, ok := value.(dict)
	entries, found := all["entries"].(*list)
	if !ok || !found {
		return nil, fmt.Errorf("it has no list of entries")
	}
	r := &Record{groups: map[string]members{}, texts: map[string]string{}}
	library, _ := all["comm_lib_version"].(string)
	r.ours = strings.HasPrefix(library, "goccl")
	if at, ok := all[WrittenKey].(int64); ok {
		r.Written = time.Unix(0, at)
	}
	if groups, ok := all["pg_config"].(dict); ok {
		for key, value := range groups {
			if group, ok := value.(dict); ok {
				if err := r.addGroup(key, group); err != nil {
					return nil, err
				}
			}
		}
	}
	for i, value := range entries.items {
		fields, ok := value.(dict)
		if !ok {
			return nil, fmt.Errorf("entry %d is no dict", i)
		}
		e, err := r.entry(fields)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		r.entries = append(r.entries, e)
	}
	r.texts = nil
	slices.SortStableFunc(r.entries, func(a, b entry) int { return int(min(max(a.id-b.id, -1), 1)) })
	return r, nil
}

func (r *Record) addGroup(key string, group dict) error {
	name, ok := group["name"].(string)
	if !ok {
		name = key
	}
	m := members{description: printable(textOf(group["desc"]))}
	if ranks, ok := group["global_ranks"].(*list); ok {
		if err := r.look(rankCost * len(ranks.items)); err != nil {
			return err
		}
		for _, rank := range ranks.items {
			if n, ok := rank.(int64); ok {
				m.ranks = append(m.ranks, int(n))
			}
		}
	} else { // as Python prints it: [0, 1]
		if err := r.look(rankCost / 2 * len(textOf(group["ranks"]))); err != nil {
			return err
		}
		for rank := range strings.SplitSeq(strings.Trim(textOf(group["ranks"]), "[]"), ",") {
			if n, err := strconv.Atoi(strings.TrimSpace(rank)); err == nil {
				m.ranks = append(m.ranks, n)
			}
		}
	}
	r.groups[printable(name)] = m
	return nil
}

func textOf(value any) string {
	text, _ := value.(string)
	return text
}

// printable makes the text of a file harmless for a terminal.
func printable(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most]
	}
	return strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}

// text is printable. Equal texts of a record are one, so that they do not keep the whole file.
func (r *Record) text(text string) string {
	if known, ok := r.texts[text]; ok {
		return known
	}
	known := printable(strings.Clone(text))
	r.texts[strings.Clone(text)] = known
	return known
}

func (r *Record) entry(fields dict) (e entry, err error) {
	group, ok := fields["process_group"].(*list)
	if !ok || len(group.items) == 0 {
		return e, fmt.Errorf("it has no process group")
	}
	name := textOf(fields["profiling_name"])
	if _, title, ok := strings.Cut(name, ":"); ok { // the backend
		name = title
	}
	number := func(key string, missing int64) int64 {
		if n, ok := fields[key].(int64); ok {
			return n
		}
		return missing
	}
	e = entry{group: r.text(textOf(group.items[0])), name: r.text(name),
		id: number("op_id", number("record_id", 0)), seq: number("collective_seq_id", number("seq_id", 0)),
		op: r.text(textOf(fields[OperatorKey])), root: number(RootKey, -1), tag: number(TagKey, -1),
		begun: time.Unix(0, number("time_created_ns", 0))}
	if e.message, _ = fields["is_p2p"].(bool); e.message {
		e.seq = number("p2p_seq_id", 0)
	}
	var inType, outType string
	if e.in, inType, err = r.tensors(fields["input_sizes"], fields["input_dtypes"]); err != nil {
		return e, err
	}
	if e.out, outType, err = r.tensors(fields["output_sizes"], fields["output_dtypes"]); err != nil {
		return e, err
	}
	if e.typ = inType; e.typ == "" {
		e.typ = outType
	}
	if e.name == "barrier" {
		e.typ = "" // it has none, whatever its caller says
	}
	retired, _ := fields["retired"].(bool)
	switch {
	case textOf(fields["state"]) == "completed":
		e.state = ended
		// Without a duration, goccl has only seen that it had ended at some later time.
		_, timed := fields["duration_ms"]
		if at := number("time_discovered_completed_ns", 0); at != 0 && (timed || !r.ours) {
			e.over = time.Unix(0, at)
		}
	case retired && r.ours:
		e.state = failed
	}
	return e, nil
}

// rankCost is how much a member of a group counts in look, for what Compare keeps of each.
const rankCost = 8

// look counts what a list refers to.
func (r *Record) look(n int) error {
	if r.looked += n; r.looked > mostValues {
		return fmt.Errorf("its lists are too long")
	}
	return nil
}

// tensors adds up the elements of tensors, and returns the type of the first one.
func (r *Record) tensors(sizes, types any) (elements int64, typ string, err error) {
	shapes, ok := sizes.(*list)
	if !ok {
		return 0, "", nil
	}
	for _, value := range shapes.items {
		shape, ok := value.(*list)
		if !ok {
			return 0, "", fmt.Errorf("a size is no list")
		}
		if err := r.look(1 + len(shape.items)); err != nil {
			return 0, "", err
		}
		product := int64(1)
		for _, value := range shape.items {
			n, _ := value.(int64)
			product *= n
		}
		elements += product
	}
	if names, ok := types.(*list); ok && len(names.items) > 0 {
		name := r.text(textOf(names.items[0]))
		if typ = typeNames[name]; typ == "" {
			typ = name
		}
	}
	return elements, typ, nil
}
