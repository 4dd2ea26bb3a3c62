package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo/probe"
)

// Ask asks a process for a snapshot. The error is for people: it says why there is none.
func Ask(pid int) (*Process, error) {
	dialer := net.Dialer{Timeout: askSpan}
	c, err := dialer.Dial("unix", socketOf(pid, namespace()).Name)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fault.New(fault.NotSupported, "process %d has no groups of goccl", pid)
	case err != nil:
		return nil, fault.Wrap(fault.System, err, "process %d", pid)
	}
	conn := c.(*net.UnixConn)
	defer conn.Close()
	if err := genuine(conn, pid, os.Geteuid()); err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(askSpan))
	var p Process
	err = json.NewDecoder(io.LimitReader(conn, mostAnswer)).Decode(&p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.New(fault.Timeout, "process %d does not answer%s", pid, stopped(pid))
	case err != nil:
		return nil, fault.Wrap(fault.System, err, "process %d has ended, or is asked by too many at a time", pid)
	}
	p.Pid = pid
	return &p, nil
}

// genuine refuses what another process answers, or, unless user is root, what a process of another
// user does: anybody may take the name of a socket first.
func genuine(conn *net.UnixConn, pid, user int) error {
	cred, err := credentials(conn)
	switch {
	case err != nil:
		return fault.Wrap(fault.System, err, "process %d", pid)
	case int(cred.Pid) != pid:
		return fault.New(fault.NotSupported,
			"process %d: its socket is held by process %d of user %d", pid, cred.Pid, cred.Uid)
	case user != 0 && int(cred.Uid) != user && cred.Uid != 0:
		return fault.New(fault.NotSupported, "process %d belongs to another user", pid)
	}
	return nil
}

// Processes returns the processes of this host that can be asked, in the order of their numbers:
// those that see the same network as this one.
func Processes() ([]int, error) {
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "the processes of this host")
	}
	defer file.Close()
	return listed(file, namespace())
}

// listed reads the table of the kernel.
func listed(table io.Reader, namespace uint64) (pids []int, err error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		_, name, ours := strings.Cut(lines.Text(), " "+prefix)
		if !ours {
			continue
		}
		number, space, _ := strings.Cut(name, "-")
		pid, err := strconv.Atoi(number)
		if err != nil || pid <= 0 || space != strconv.FormatUint(namespace, 10) {
			continue
		}
		if !slices.Contains(pids, pid) { // connections have the name, too
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, lines.Err()
}

// Family returns a process and all that descend from it; none if there is no such process.
func Family(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "the processes of this host")
	}
	children := map[int][]int{}
	there := false
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		there = there || child == pid
		if s, ok := probe.ReadStat(child); ok {
			children[s.Parent] = append(children[s.Parent], child)
		}
	}
	if !there {
		return nil, nil
	}
	family := []int{pid}
	for at := 0; at < len(family); at++ { // it grows
		for _, child := range children[family[at]] {
			if !slices.Contains(family, child) { // numbers may have been used again meanwhile
				family = append(family, child)
			}
		}
	}
	return family, nil
}

// stopped says so if a process is stopped.
func stopped(pid int) string {
	if s, ok := probe.ReadStat(pid); ok && strings.ContainsAny(s.State, "Tt") {
		return ": it is stopped"
	}
	return ""
}
