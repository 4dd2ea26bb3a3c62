package tcp

import "net/netip"

// Reroute returns the Address of a process as peers are to see it behind a relay: port returns the
// port of the relay for each address that the process listens on. It is for tests of broken paths;
// all peers, and the process itself, must be given the same address.
func Reroute(address []byte, port func(at netip.AddrPort) (uint16, error)) ([]byte, error) {
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	for i := range a.endpoints {
		if a.endpoints[i].port, err = port(a.endpoints[i].addrPort()); err != nil {
			return nil, err
		}
	}
	return a.encode(), nil
}
