//go:build (amd64 || arm64) && !nordma

package verbs

import (
	"syscall"
	"unsafe"
)

// The calls of C, with the names that they have there. Each returns why it was refused, 0 if it was
// not. What pointers point to escapes, so it does not move.

func (l *library) forkInit() syscall.Errno { return l.status(forkInit) }

// getDeviceList returns an array that ends with 0.
func (l *library) getDeviceList() (uintptr, syscall.Errno) {
	count := new(int32)
	return l.object(getDeviceList, uintptr(unsafe.Pointer(count)))
}

func (l *library) freeDeviceList(list uintptr) { l.call(freeDeviceList, list) }

func (l *library) getDeviceName(device uintptr) string {
	name, _ := l.object(getDeviceName, device)
	return textAt(name, 64)
}

func (l *library) openDevice(device uintptr) (uintptr, syscall.Errno) {
	return l.object(openDevice, device)
}

func (l *library) closeDevice(context uintptr) syscall.Errno { return l.status(closeDevice, context) }

func (l *library) queryDevice(context uintptr, into *cDeviceAttr) syscall.Errno {
	return l.status(queryDevice, context, uintptr(unsafe.Pointer(into)))
}

func (l *library) queryPort(context uintptr, port int, into *cPortAttr) syscall.Errno {
	return l.status(queryPort, context, uintptr(port), uintptr(unsafe.Pointer(into)))
}

func (l *library) queryGID(context uintptr, port, index int, into *[16]byte) syscall.Errno {
	return l.status(queryGID, context, uintptr(port), uintptr(index), uintptr(unsafe.Pointer(into)))
}

func (l *library) getAsyncEvent(context uintptr, into *cEvent) syscall.Errno {
	return l.status(getAsyncEvent, context, uintptr(unsafe.Pointer(into)))
}

func (l *library) ackAsyncEvent(event *cEvent) { l.call(ackAsyncEvent, uintptr(unsafe.Pointer(event))) }

func (l *library) allocPD(context uintptr) (uintptr, syscall.Errno) {
	return l.object(allocPD, context)
}

func (l *library) deallocPD(domain uintptr) syscall.Errno { return l.status(deallocPD, domain) }

func (l *library) regMR(domain uintptr, memory []byte, access uint32) (uintptr, syscall.Errno) {
	return l.object(regMR, domain, uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)),
		uintptr(access))
}

// regMRAt is regMR of memory of a device.
func (l *library) regMRAt(domain uintptr, address uint64, bytes int) (uintptr, syscall.Errno) {
	return l.object(regMR, domain, uintptr(address), uintptr(bytes), 0)
}

func (l *library) regDMABufMR(domain uintptr, offset uint64, bytes int, at uint64, fd int) (uintptr, syscall.Errno) {
	return l.object(regDMABufMR, domain, uintptr(offset), uintptr(bytes), uintptr(at), uintptr(fd), 0)
}

func (l *library) deregMR(region uintptr) syscall.Errno { return l.status(deregMR, region) }

func (l *library) createChannel(context uintptr) (uintptr, syscall.Errno) {
	return l.object(createChannel, context)
}

func (l *library) destroyChannel(channel uintptr) syscall.Errno {
	return l.status(destroyChannel, channel)
}

func (l *library) createCQ(context uintptr, entries int, cookie, channel uintptr) (uintptr, syscall.Errno) {
	return l.object(createCQ, context, uintptr(entries), cookie, channel, 0)
}

func (l *library) destroyCQ(queue uintptr) syscall.Errno { return l.status(destroyCQ, queue) }

func (l *library) createSRQ(domain uintptr, init *cReceivesInit) (uintptr, syscall.Errno) {
	return l.object(createSRQ, domain, uintptr(unsafe.Pointer(init)))
}

func (l *library) destroySRQ(queue uintptr) syscall.Errno { return l.status(destroySRQ, queue) }

func (l *library) createQP(domain uintptr, init *cPairInit) (uintptr, syscall.Errno) {
	return l.object(createQP, domain, uintptr(unsafe.Pointer(init)))
}

func (l *library) modifyQP(pair uintptr, attr *cPairAttr, mask int) syscall.Errno {
	return l.status(modifyQP, pair, uintptr(unsafe.Pointer(attr)), uintptr(mask))
}

func (l *library) destroyQP(pair uintptr) syscall.Errno { return l.status(destroyQP, pair) }
