package shm

import (
	"bytes"
	"encoding/binary"
)

const addressMagic = "goccl shm 1\x00"

// id of a process: random, and known only to processes that were given its address.
type id [16]byte

// address is the content of Fabric.Address.
type address struct {
	Boot    [16]byte // of the kernel
	Network uint64   // topo.Place.Network: abstract sockets live in a network namespace
	UID     uint32   // topo.Place.User
	PID     uint32   // as the process sees itself; for error messages
	ID      id
	Socket  [16]byte // random part of the socket's name
}

func (a *address) encode() []byte {
	b := bytes.NewBufferString(addressMagic)
	binary.Write(b, binary.LittleEndian, a)
	return b.Bytes()
}

// parseAddress reports whether b is an address of this version.
func parseAddress(b []byte) (a address, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(addressMagic))
	if !ok || len(rest) != binary.Size(&a) {
		return a, false
	}
	_, err := binary.Decode(rest, binary.LittleEndian, &a)
	return a, err == nil
}

// reaches reports whether two processes can share memory. It is symmetric.
func (a *address) reaches(b *address) bool {
	return a.Boot == b.Boot && a.Network == b.Network && a.UID == b.UID && a.ID != b.ID
}
