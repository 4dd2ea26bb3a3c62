package probe

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/topo"
)

// crossMemory tries process_vm_readv as ranks would use it on each other: on another process of the
// same user, here a child. The call may be missing, or refused by a seccomp profile, by Yama or for
// lack of credentials; only a trial shows which.
func crossMemory(root string) topo.Finding {
	whose, err := "a child", readChild()
	if err == errNoChild {
		whose, err = "this process", readSelf()
	}
	return attachFinding(whose, err, word(root, "proc/sys/kernel/yama/ptrace_scope"))
}

var errNoChild = fmt.Errorf("no child to try it on")

// readChild starts a program that waits for its input, and reads the head of its first mapping.
func readChild() error {
	child := exec.Command("cat")
	input, err := child.StdinPipe()
	if err != nil {
		return errNoChild
	}
	output, err := child.StdoutPipe()
	if err != nil {
		return errNoChild
	}
	if err := child.Start(); err != nil {
		return errNoChild
	}
	defer func() {
		input.Close() // ends the child
		child.Wait()
	}()
	// The child's program runs once it has answered; before, its memory may still be that of the
	// process that starts it. Its first mapping is then the program's image, which begins with the
	// magic of an ELF file.
	answer := make([]byte, 1)
	if _, err := input.Write([]byte("x")); err != nil {
		return errNoChild
	}
	if _, err := io.ReadFull(output, answer); err != nil {
		return errNoChild
	}
	maps, err := os.ReadFile(path.Join("/proc", strconv.Itoa(child.Process.Pid), "maps"))
	if err != nil {
		return errNoChild
	}
	line, _, _ := strings.Cut(string(maps), "\n")
	start, _, _ := strings.Cut(line, "-")
	address, err := strconv.ParseUint(start, 16, 64)
	if err != nil {
		return errNoChild
	}
	head, err := readMemory(child.Process.Pid, uintptr(address), 4)
	if err == nil && !bytes.Equal(head, []byte("\x7fELF")) {
		return fmt.Errorf("it gave %q where the program starts", head)
	}
	return err
}

func readSelf() error {
	from := []byte("goccl")
	got, err := readMemory(os.Getpid(), uintptr(unsafe.Pointer(&from[0])), len(from))
	if err == nil && !bytes.Equal(got, from) {
		return fmt.Errorf("it gave %q instead of %q", got, from)
	}
	return err
}

func readMemory(pid int, address uintptr, n int) ([]byte, error) {
	to := make([]byte, n)
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(n)
	got, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: address, Len: n}}, 0)
	return to[:max(got, 0)], err
}
