package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// shapedNetwork is a switch with a port for each rank, made of network namespaces: every rank has one of its own, with one interface, whose
// traffic is held to a rate in both directions.
type shapedNetwork struct {
	names []string // namespaces; the last one holds the switch
}

// newShapedNetwork needs root, ip and tc. rate is what tc understands, as 1gbit.
func newShapedNetwork(ranks int, rate string) (*shapedNetwork, error) {
	n := &shapedNetwork{}
	hub := fmt.Sprintf("goccl%d-switch", os.Getpid())
	script := []string{
		"ip netns add " + hub,
		"ip -n " + hub + " link add switch type bridge",
		"ip -n " + hub + " link set switch up",
	}
	for rank := range ranks {
		name := fmt.Sprintf("goccl%d-rank%d", os.Getpid(), rank)
		n.names = append(n.names, name)
		port := fmt.Sprintf("port%d", rank)
		script = append(script,
			"ip netns add "+name,
			fmt.Sprintf("ip -n %s link add eth0 type veth peer name %s netns %s", name, port, hub),
			fmt.Sprintf("ip -n %s addr add 10.77.%d.%d/16 dev eth0", name, rank/250, 1+rank%250),
			"ip -n "+name+" link set lo up",
			"ip -n "+name+" link set eth0 up",
			"ip -n "+hub+" link set "+port+" master switch up",
			fmt.Sprintf("ip netns exec %s tc qdisc add dev eth0 root tbf rate %s burst 256kb latency 50ms", name, rate),
			fmt.Sprintf("ip netns exec %s tc qdisc add dev %s root tbf rate %s burst 256kb latency 50ms", hub, port, rate),
		)
	}
	n.names = append(n.names, hub)
	for _, line := range script {
		words := strings.Fields(line)
		if text, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %v %s (network namespaces need root, ip and tc)", line, err, strings.TrimSpace(string(text))),
				n.close())
		}
	}
	return n, nil
}

// prefix runs a command in the namespace of a rank.
func (n *shapedNetwork) prefix(rank int) []string {
	return []string{"ip", "netns", "exec", n.names[rank]}
}

// close removes the namespaces, with all interfaces in them. Those that were never made do not matter.
func (n *shapedNetwork) close() error {
	var errs []error
	for _, name := range n.names {
		if _, err := os.Stat("/run/netns/" + name); err != nil {
			continue
		}
		if text, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ip netns del %s: %v %s", name, err, text))
		}
	}
	return errors.Join(errs...)
}
