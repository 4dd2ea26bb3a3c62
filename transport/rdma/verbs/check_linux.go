//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl/fault"
)

// operations are the functions that verbs.h calls inline, by the table of a context.
type operations struct {
	poll, arm, postReceives, post uintptr
}

// What the kernel calls the files of events, and what is part of the names of adapters' own.
const (
	eventFile   = "anon_inode:[infinibandevent]"
	commandFile = "/uverbs"
)

// findOperations returns the operations of an open context, if all that is known of a context is
// found in it where verbs.h of this package's layout has it. Otherwise nothing in it may be called.
func findOperations(c *cContext, size, device uintptr, code executable, fileOf func(int32) string) (operations, error) {
	if c.marker != extended {
		return operations{}, misfit("ibv_context.abi_compat", uint64(c.marker), "the mark of an extended context")
	}
	const most = 1 << 20
	if size < leastExtended || size > most || size%8 != 0 {
		return operations{}, misfit("verbs_context.sz", uint64(size), "the size of an extended context")
	}
	if c.device != device {
		return operations{}, misfit("ibv_context.device", uint64(c.device), "the device that was opened")
	}
	if file := fileOf(c.async); file != eventFile {
		return operations{}, misfit("ibv_context.async_fd", uint64(uint32(c.async)),
			fmt.Sprintf("a descriptor of %s rather than of %q", eventFile, file))
	}
	if file := fileOf(c.command); !strings.Contains(file, commandFile) {
		return operations{}, misfit("ibv_context.cmd_fd", uint64(uint32(c.command)),
			fmt.Sprintf("a descriptor of %s rather than of %q", commandFile, file))
	}
	const mostVectors = 1 << 16
	if c.vectors < 1 || c.vectors > mostVectors {
		return operations{}, misfit("ibv_context.num_comp_vectors", uint64(uint32(c.vectors)), "a number of vectors")
	}
	found := operations{c.operations[opPoll], c.operations[opArm], c.operations[opPostReceives], c.operations[opPost]}
	for _, each := range []struct {
		name string
		at   uintptr
	}{
		{"poll_cq", found.poll}, {"req_notify_cq", found.arm}, {"post_srq_recv", found.postReceives},
		{"post_send", found.post},
	} {
		if !code.has(each.at) {
			return operations{}, misfit("ibv_context.ops."+each.name, uint64(each.at), "a function")
		}
	}
	return found, nil
}

// misfit is the error of memory of the library that is not laid out as expected.
func misfit(field string, found uint64, want string) error {
	return fault.New(fault.NotSupported, "rdma: libibverbs does not fit: %s is %#x, which is not %s", field, found, want)
}

// field is one of an object of the library, whose value is known.
type field struct {
	name        string
	found, want uint64
}

// fits returns an error unless all fields have the values that they must have.
func fits(fields ...field) error {
	for _, f := range fields {
		if f.found != f.want {
			return misfit(f.name, f.found, fmt.Sprintf("%#x", f.want))
		}
	}
	return nil
}

// executable has the addresses of memory that holds code, as pairs of start and end.
type executable [][2]uintptr

func (e executable) has(address uintptr) bool {
	for _, r := range e {
		if address >= r[0] && address < r[1] {
			return true
		}
	}
	return false
}

// parseMaps reads the form of /proc/self/maps; lines that are not of it count as no code.
func parseMaps(text []byte) executable {
	var all executable
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) < 2 || len(words[1]) < 3 || words[1][2] != 'x' {
			continue
		}
		from, to, _ := bytes.Cut(words[0], []byte("-"))
		start, err := strconv.ParseUint(string(from), 16, 64)
		end, errEnd := strconv.ParseUint(string(to), 16, 64)
		if err == nil && errEnd == nil {
			all = append(all, [2]uintptr{uintptr(start), uintptr(end)})
		}
	}
	return all
}

// codeOfProcess returns where code is now. Libraries of adapters are loaded when one is opened.
func codeOfProcess() (executable, error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fault.Wrap(fault.NotSupported, err, "rdma: it cannot be checked that libibverbs fits")
	}
	return parseMaps(text), nil
}

// fileOfProcess returns what a descriptor of this process is of, "" if of nothing.
func fileOfProcess(descriptor int32) string {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(descriptor)))
	if err != nil {
		return ""
	}
	return name
}
