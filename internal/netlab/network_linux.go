package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Hint says what to do where Attributes or starting a process with them fails.
const Hint = "the system refuses namespaces: be root (in a container, with CAP_SYS_ADMIN), or allow them to users (sysctl " +
	"user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"

// Attributes returns the attributes of the process that is to make a network. A user other than
// root becomes root within a user namespace. The process ends with the thread that starts it.
func Attributes() (*syscall.SysProcAttr, error) {
	for _, tool := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("networks of hosts need the command %s, and PATH has none: install iproute2 "+
				"(iproute and iproute-tc on Fedora), or add /usr/sbin to PATH", tool)
		}
	}
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	a.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNET
	a.Unshareflags = syscall.CLONE_NEWNS
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return a, nil
}

// Possible returns why this process cannot have a network made, nil if it can. It tries a part of
// it.
func Possible() error {
	attributes, err := Attributes()
	if err != nil {
		return err
	}
	probe := exec.Command("sh", "-c", "mount -t tmpfs none /run && ip link add probe type bridge")
	attributes.Pdeathsig = 0
	probe.SysProcAttr = attributes
	if said, err := probe.CombinedOutput(); err != nil {
		return fmt.Errorf("no networks of hosts here: %v: %s", err, said)
	}
	return nil
}

// Make creates the network around this process, which was started with Attributes. It exists until
// the process ends.
func (n *Network) Make() error {
	if err := n.Validate(); err != nil {
		return err
	}
	names := "/run/netns" // where ip stores the names of namespaces
	if os.MkdirAll(names, 0o755) != nil {
		names = "/run"
	}
	if err := syscall.Mount("tmpfs", names, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w: %s", names, err, Hint)
	}
	for host := range n.Hosts {
		if err := run("", "ip netns add "+Host(host), "ip -n "+Host(host)+" link set lo up"); err != nil {
			return err
		}
	}
	for wire := range n.Wires {
		lay := n.bridge
		if n.Wires[wire].relayed() {
			lay = n.relay
		}
		if err := lay(wire); err != nil {
			return err
		}
	}
	return nil
}

// bridge makes a wire of veth pairs. Their other ends, port0.1 of wire 0 and host 1 for example,
// are in the network of this process.
func (n *Network) bridge(wire int) error {
	bridge, eth := fmt.Sprintf("wire%d", wire), Interface(wire)
	if err := run("", "ip link add "+bridge+" type bridge mcast_snooping 0", "ip link set "+bridge+" up"); err != nil {
		return err
	}
	// All hosts know each other permanently: neighbours that hosts learn go into one table of the
	// whole machine, which is too small for 64 hosts.
	var neighbours strings.Builder
	for host := range n.Hosts {
		fmt.Fprintf(&neighbours, "neigh add %s lladdr %s dev %s nud permanent\n",
			n.Address(wire, host), MAC(wire, host), eth)
	}
	for host := range n.Hosts {
		name, port := Host(host), fmt.Sprintf("port%d.%d", wire, host)
		err := run("", "ip link add "+port+" type veth peer name "+eth+" address "+MAC(wire, host)+" netns "+name)
		if err == nil {
			err = n.address(wire, host)
		}
		if err == nil {
			err = run(neighbours.String(), "ip -n "+name+" -batch -")
		}
		if err == nil {
			err = run("", "ip link set "+port+" master "+bridge, "ip link set "+port+" up")
		}
		if err == nil {
			err = n.shape("", port, wire)
		}
		if err == nil {
			err = n.shape(Host(host), eth, wire)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// address gives a host's interface its address and takes it up.
func (n *Network) address(wire, host int) error {
	add := "ip -n " + Host(host) + " addr add " + n.Address(wire, host) + n.prefix(wire) + " dev " + Interface(wire)
	if n.Wires[wire].IPv6 {
		add += " nodad"
	}
	return run("", add, "ip -n "+Host(host)+" link set "+Interface(wire)+" up")
}

// shape limits what leaves by an interface. The bucket holds two of the largest packets. With a
// smaller one, packets are cut up and lost; with a larger one, the start of every message is free.
// A deep queue delays acknowledgements and credit, for which the other direction waits; with a
// short one TCP loses little.
func (n *Network) shape(namespace, device string, wire int) error {
	if n.Wires[wire].Rate == "" {
		return nil
	}
	command := "tc"
	if namespace != "" {
		command += " -n " + namespace
	}
	return run("", command+" qdisc add dev "+device+" root tbf rate "+n.Wires[wire].Rate+" burst 128kb latency 10ms")
}

// run runs command lines, each with the same standard input.
func run(input string, lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdin = strings.NewReader(input)
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("making the network: %s: %v: %s", line, err, strings.TrimSpace(string(said)))
		}
	}
	return nil
}
