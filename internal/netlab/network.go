package netlab

import (
	"fmt"
	"time"
)

// leastMost is what any IPv4 network must carry.
const leastMost = 576

// Most is the largest number of hosts of a network, and of wires.
const Most = 128

// Network describes hosts and what joins them.
type Network struct {
	Hosts int
	Wires []Wire
}

// Wire joins all hosts of a network, as their interface eth0, eth1 and so on.
type Wire struct {
	Rate  string        // of each host's interface in each direction, as tc writes it (1gbit); none if empty
	Delay time.Duration // what a round trip takes longer
	Loss  float64       // the part of packets that is lost, each of at most 1,500 bytes
	Flow  int64         // bytes a second of each connection in each direction; what is more is lost. 0: no limit
	Most  int           // larger packets are lost, and nobody says so; in bytes of IP. 0: none
	Site  int           // so many consecutive hosts are near each other, without Delay; 0: each is alone
	IPv6  bool          // the interfaces have IPv6 addresses only

	// Firewalls: IPv4 packets with which these hosts would open a TCP connection are lost, or
	// answered by a reset.
	Drops, Refuses []int
}

// relayed reports whether this process must carry the packets of a wire.
func (w *Wire) relayed() bool {
	return w.Delay > 0 || w.Loss > 0 || w.Flow > 0 || w.Most > 0 || len(w.Drops)+len(w.Refuses) > 0
}

// Validate reports what is wrong with n.
func (n *Network) Validate() error {
	if n.Hosts < 2 || n.Hosts > Most {
		return fmt.Errorf("%d hosts: want 2 to %d", n.Hosts, Most)
	}
	if len(n.Wires) == 0 || len(n.Wires) > Most {
		return fmt.Errorf("%d wires: want 1 to %d", len(n.Wires), Most)
	}
	for i, w := range n.Wires {
		if w.Delay < 0 || w.Delay > time.Minute {
			return fmt.Errorf("wire %d: delay %v: want 0 to 1m", i, w.Delay)
		}
		if w.Site < 0 {
			return fmt.Errorf("wire %d: site of %d hosts: want 0 or more", i, w.Site)
		}
		if w.Loss < 0 || w.Loss > 0.5 {
			return fmt.Errorf("wire %d: loss %v: want 0 to 0.5", i, w.Loss)
		}
		if w.Flow < 0 {
			return fmt.Errorf("wire %d: flow %v: want 0 or more", i, w.Flow)
		}
		if w.Most < 0 || w.Most > 0 && w.Most < leastMost {
			return fmt.Errorf("wire %d: most %v: want %d or more, or 0", i, w.Most, leastMost)
		}
	}
	return nil
}

// near reports whether two hosts are near each other on a wire.
func (w *Wire) near(a, b int) bool { return w.Site > 0 && a/w.Site == b/w.Site }

// Host returns the name of a host's namespace.
func Host(host int) string { return fmt.Sprintf("host%d", host) }

// Interface returns the name of every host's interface on a wire.
func Interface(wire int) string { return fmt.Sprintf("eth%d", wire) }

// In returns the words before a command that make it run on a host.
func In(host int) []string { return []string{"ip", "netns", "exec", Host(host)} }

// Address returns the address of a host on a wire.
func (n *Network) Address(wire, host int) string {
	if n.Wires[wire].IPv6 {
		return fmt.Sprintf("fd77::%x:%x", wire, 1+host)
	}
	return fmt.Sprintf("10.77.%d.%d", wire, 1+host)
}

func (n *Network) prefix(wire int) string {
	if n.Wires[wire].IPv6 {
		return "/112"
	}
	return "/24"
}

// MAC returns the hardware address of a host on a wire.
func MAC(wire, host int) string { return fmt.Sprintf("02:00:00:00:%02x:%02x", wire, 1+host) }
