package verbstest

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// deviceMemory is memory of a device, in pages, and what finds it.
type deviceMemory struct {
	bytes []byte
	freed atomic.Bool
}

const theDescriptor = 12345

func (m *deviceMemory) dmaBuf(descriptor int) ([]byte, func() bool, error) {
	if descriptor != theDescriptor {
		return nil, nil, errors.New("no dma-buf")
	}
	return m.bytes, func() bool { return !m.freed.Load() }, nil
}

func (m *deviceMemory) at(at uint64, bytes int) ([]byte, func() bool, error) {
	offset := at - addressOf(m.bytes)
	if offset+uint64(bytes) > uint64(len(m.bytes)) {
		return nil, nil, errors.New("no memory")
	}
	return m.bytes[offset:][:bytes], func() bool { return !m.freed.Load() }, nil
}

// TestMemoryOfDevices writes from it, by both ways.
func TestMemoryOfDevices(t *testing.T) {
	page := os.Getpagesize()
	m := &deviceMemory{bytes: make([]byte, 4*page)}
	for i := range m.bytes {
		m.bytes[i] = byte(i * 7)
	}
	n, b := two(t, Options{Seed: 1, DMABuf: m.dmaBuf, PeerMemory: m.at, Locked: benchBytes})
	device := b.a.c.(verbs.DeviceRegistrar)
	dmaBuf, err := device.RegisterDMABuf(theDescriptor, 100, 2*page, 1<<40+100)
	require.NoError(t, err)
	byAddress, err := device.RegisterAddress(addressOf(m.bytes)+100, 2*page)
	require.NoError(t, err)
	pa, pb := b.connected()
	for i, from := range []verbs.Piece{{At: 1<<40 + 150, Bytes: 5000, Key: dmaBuf.Local()},
		{At: addressOf(m.bytes) + 150, Bytes: 5000, Key: byAddress.Local()}} {
		w := b.a.tell(b.b, 0, 5000, uint32(i))
		w.From[0] = from
		clear(b.b.memory)
		b.b.receive(1)
		b.a.post(pa, w)
		b.b.arrived(b.b.poll(1)[0], pb, uint32(i), 5000)
		b.b.holds(0, m.bytes[150:5150])
		b.a.poll(1)
	}
	w := b.a.write(b.b, 0, 100)
	w.From[0] = verbs.Piece{At: 1<<40 + 99, Bytes: 1, Key: dmaBuf.Local()} // before it
	b.a.post(pa, w)
	require.Equal(t, verbs.LocalProtection, b.a.poll(1)[0].Status)
	require.NoError(t, dmaBuf.Close())
	require.NoError(t, byAddress.Close())
	n.Check(t)
}

// TestMemoryOfDevicesIsFreed: a write that reads it then is a report, and moves nothing.
func TestMemoryOfDevicesIsFreed(t *testing.T) {
	m := &deviceMemory{bytes: make([]byte, os.Getpagesize())}
	n, b := two(t, Options{Seed: 1, DMABuf: m.dmaBuf})
	r, err := b.a.c.(verbs.DeviceRegistrar).RegisterDMABuf(theDescriptor, 0, 100, 0)
	require.NoError(t, err)
	pa, _ := b.connected()
	m.freed.Store(true)
	w := b.a.write(b.b, 0, 100)
	w.From[0] = verbs.Piece{At: 0, Bytes: 100, Key: r.Local()}
	b.a.post(pa, w)
	require.Equal(t, verbs.LocalProtection, b.a.poll(1)[0].Status)
	reported(t, n, "a write reads memory of a device that was freed")
	require.NoError(t, r.Close(), "nothing reads it any more")
}

// TestMemoryOfDevicesRefused: what is asked for is checked, and can be refused.
func TestMemoryOfDevicesRefused(t *testing.T) {
	page := os.Getpagesize()
	m := &deviceMemory{bytes: make([]byte, 2*page)}
	n, b := two(t, Options{Seed: 1, DMABuf: m.dmaBuf, PeerMemory: m.at})
	device := b.a.c.(verbs.DeviceRegistrar)
	for _, each := range []struct {
		descriptor    int
		offset, bytes int
		at            uint64
		errno         unix.Errno
	}{
		{1, 0, page, 0, unix.EBADF},
		{theDescriptor, 0, 0, 0, unix.EINVAL},
		{theDescriptor, page, 2 * page, 0, unix.EINVAL},
		{theDescriptor, 3 * page, page, 0, unix.EINVAL},
		{theDescriptor, 100, 100, 0, unix.EINVAL},
	} {
		_, err := device.RegisterDMABuf(each.descriptor, uint64(each.offset), each.bytes, each.at)
		require.ErrorIs(t, err, each.errno, "%+v", each)
	}
	_, err := device.RegisterAddress(addressOf(m.bytes)+1, 2*page)
	require.ErrorIs(t, err, unix.EFAULT)
	for _, call := range []string{"RegisterDMABuf", "RegisterAddress"} {
		n.Refuse(0, call, 1, nil)
	}
	_, err = device.RegisterDMABuf(theDescriptor, 0, page, 0)
	require.ErrorContains(t, err, "RegisterDMABuf: refused by the test")
	_, err = device.RegisterAddress(addressOf(m.bytes), page)
	require.ErrorContains(t, err, "RegisterAddress: refused by the test")

	_, b = two(t, Options{Seed: 1})
	device = b.a.c.(verbs.DeviceRegistrar)
	_, err = device.RegisterDMABuf(theDescriptor, 0, page, 0)
	require.ErrorIs(t, err, fault.NotSupported)
	_, err = device.RegisterAddress(0, page)
	require.ErrorIs(t, err, fault.NotSupported)
}
