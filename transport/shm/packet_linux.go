package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendSpan bounds the time for sending a message. Messages are small and rare; a peer that lets its
// socket fill up has stopped.
const sendSpan = 5 * time.Second

// sendPacket sends a message with descriptors.
func sendPacket(conn *net.UnixConn, message any, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := conn.WriteMsgUnix(encode(message), rights, nil)
	return err
}

// receivePacket waits for a message and its descriptors, which then belong to the caller. packet is
// memory for it, of maxMessage bytes. After an error no descriptor stays open.
func receivePacket(conn *net.UnixConn, packet []byte) (message any, fds []int, err error) {
	rights := make([]byte, unix.CmsgSpace(4*mostRights))
	n, nr, flags, _, err := conn.ReadMsgUnix(packet, rights)
	if errors.Is(err, unix.ECONNRESET) {
		// The peer closed its end with a message of this side unread. Messages that it had sent
		// before come after this error.
		n, nr, flags, _, err = conn.ReadMsgUnix(packet, rights)
	}
	if errors.Is(err, io.EOF) || err == nil && n == 0 {
		return nil, nil, errEnd
	}
	if err != nil {
		return nil, nil, err
	}
	fds, err = parseRights(rights[:nr])
	if err == nil && flags&unix.MSG_CTRUNC != 0 && len(fds) < mostRights {
		closeAll(fds)
		return nil, nil, fmt.Errorf("taking the descriptors of a message: %w", unix.EMFILE)
	}
	if err == nil && flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		err = fmt.Errorf("oversized message")
	}
	if err == nil {
		message, err = decode(packet[:n])
	}
	if err == nil && len(fds) != descriptors(message) {
		err = fmt.Errorf("%T with %d descriptors", message, len(fds))
	}
	if err != nil {
		closeAll(fds)
		return nil, nil, &protocolError{err}
	}
	return message, fds, nil
}

func parseRights(rights []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for i := range messages {
		some, e := unix.ParseUnixRights(&messages[i])
		fds = append(fds, some...)
		err = errors.Join(err, e)
	}
	return fds, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// errEnd is the end of a connection.
var errEnd = errors.New("the connection has ended")

// protocolError reports a message that no working peer sends.
type protocolError struct{ cause error }

func (e *protocolError) Error() string { return "it sent what cannot be right: " + e.cause.Error() }

// descriptor returns the socket of a listener or connection, for Options.Track.
func descriptor(c syscall.Conn) int {
	fd := -1
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(s uintptr) { fd = int(s) })
	}
	return fd
}

// credentials returns the credentials of the process at the other end, as the kernel knows them.
func credentials(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, failed)
}
