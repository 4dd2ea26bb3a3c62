package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A shaped network is a switch with a port for each rank; each port is limited to a rate in both
// directions. It consists of network namespaces created by a process that runs in namespaces of its
// own: its own network is the switch, and no other process sees the names it assigns. When the
// process ends in any way, the kernel ends the ranks and removes the network. No cleanup is needed,
// and concurrent runs cannot collide.

const (
	rankInterface = "eth0" // a rank's interface, in its namespace
	namespaceHint = "the system refuses namespaces: be root (in a container, with CAP_SYS_ADMIN), or allow them to users (sysctl " +
		"user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
)

// ownGroup returns the attributes of a process whose children are to be ended with it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// ownNetwork returns the attributes of the process that creates a network. A user other than root
// becomes root within a user namespace.
func ownNetwork() (*syscall.SysProcAttr, error) {
	for _, tool := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf(
				"--rate needs the command %s, and PATH has none: install iproute2 (iproute and iproute-tc on Fedora), "+
					"or add /usr/sbin to PATH", tool)
		}
	}
	a := ownGroup()
	a.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNET
	a.Unshareflags = syscall.CLONE_NEWNS
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return a, nil
}

// makeNetwork creates the network around this process, which was started with ownNetwork.
func makeNetwork(ranks int, rate string) error {
	names := "/run/netns" // where ip stores the names of namespaces
	if os.MkdirAll(names, 0o755) != nil {
		names = "/run"
	}
	if err := syscall.Mount("tmpfs", names, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("--rate: mount a tmpfs at %s: %w: %s", names, err, namespaceHint)
	}
	// The bucket holds two of the largest packets. With a smaller bucket, packets are cut up and
	// lost; with a larger one, the start of every message is free. A deep queue delays
	// acknowledgements and credit, for which the other direction waits; with a short queue TCP
	// loses little.
	shape := " root tbf rate " + rate + " burst 128kb latency 10ms"
	// All ranks know each other permanently: neighbours that ranks learn go into one table of the
	// whole machine, which is too small for 64 ranks.
	var neighbours strings.Builder
	for rank := range ranks {
		fmt.Fprintf(&neighbours, "neigh add %s lladdr %s dev %s nud permanent\n",
			ipOf(rank), macOf(rank), rankInterface)
	}
	script := []string{"ip link add switch type bridge", "ip link set switch up"}
	for rank := range ranks {
		name, port := namespaceOf(rank), fmt.Sprintf("port%d", rank)
		script = append(script,
			"ip netns add "+name,
			"ip link add "+port+" type veth peer name "+rankInterface+" address "+macOf(rank)+" netns "+name,
			"ip -n "+name+" addr add "+ipOf(rank)+"/24 dev "+rankInterface,
			"ip -n "+name+" link set lo up",
			"ip -n "+name+" link set "+rankInterface+" up",
			"ip -n "+name+" -batch -",
			"ip link set "+port+" master switch up",
			"tc qdisc add dev "+port+shape,
			"ip netns exec "+name+" tc qdisc add dev "+rankInterface+shape,
		)
	}
	for _, line := range script {
		words := strings.Fields(line)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdin = strings.NewReader(neighbours.String()) // only the batch command reads it
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("--rate: making the network: %s: %v: %s", line, err, strings.TrimSpace(string(said)))
		}
	}
	return nil
}

func ipOf(rank int) string  { return fmt.Sprintf("10.77.0.%d", 1+rank) }
func macOf(rank int) string { return fmt.Sprintf("02:00:00:00:00:%02x", 1+rank) }

func namespaceOf(rank int) string { return fmt.Sprintf("rank%d", rank) }

// inNamespace returns the prefix of the command of a rank.
func inNamespace(rank int) []string { return []string{"ip", "netns", "exec", namespaceOf(rank)} }
