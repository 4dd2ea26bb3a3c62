package store

import (
	"encoding/binary"
	"net"
	"strconv"
	"sync"
	"time"
)

// Server serves the records to all ranks.
type Server struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	values map[string][]byte
	bytes  int // of keys and values
	conns  map[net.Conn]bool
	closed bool
}

// greeting is how long a process that connects has to say that it speaks the protocol.
const greeting = 10 * time.Second

// Serve serves a store at an address, "host:port"; with no host, on all interfaces.
func Serve(address string) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, values: map[string][]byte{}, conns: map[net.Conn]bool{}}
	s.serving.Go(s.accept)
	return s, nil
}

// Address returns where processes of this host reach the store.
func (s *Server) Address() string {
	at := s.listener.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(at.Port))
	}
	return at.String()
}

// Shutdown ends the store when all clients have left, but waits no longer than d. Then the
// connections of those that are left break.
func (s *Server) Shutdown(d time.Duration) error {
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		left := len(s.conns)
		s.mu.Unlock()
		if left == 0 {
			break
		}
	}
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
	return err
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			s.mu.Lock()
			over := s.closed
			s.mu.Unlock()
			if over {
				return
			}
			time.Sleep(10 * time.Millisecond) // no descriptor is free, for example
			continue
		}
		s.mu.Lock()
		if s.closed {
			conn.Close()
		} else {
			s.conns[conn] = true
			s.serving.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

func (s *Server) serve(conn net.Conn) {
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		conn.Close()
	}()
	conn.SetReadDeadline(time.Now().Add(greeting))
	wire := newStream(conn)
	var number [4]byte
	if kind := query(wire.readByte()); kind != validate {
		return
	}
	if wire.read(number[:]); binary.LittleEndian.Uint32(number[:]) != magic {
		return
	}
	conn.SetReadDeadline(time.Time{})
	for wire.err == nil {
		s.answer(wire)
	}
}

// answer takes a request and answers it. The connection ends with one that is not understood.
func (s *Server) answer(wire *stream) {
	kind := query(wire.readByte())
	switch kind {
	case set:
		key, value := wire.readBytes(mostKey), wire.readBytes(mostValue)
		s.change(wire, string(key), func([]byte) ([]byte, bool) { return value, true })
	case compareSet:
		key, want, value := wire.readBytes(mostKey), wire.readBytes(mostValue), wire.readBytes(mostValue)
		wire.writeBytes(s.change(wire, string(key), func(old []byte) ([]byte, bool) {
			return value, string(old) == string(want)
		}))
	case add:
		key, more := wire.readBytes(mostKey), int64(wire.readNumber())
		var sum int64
		s.change(wire, string(key), func(old []byte) ([]byte, bool) {
			number, err := strconv.ParseInt(string(old), 10, 64)
			if err != nil && len(old) > 0 {
				wire.fail("%q is no number", key)
			}
			sum = number + more
			return strconv.AppendInt(nil, sum, 10), true
		})
		wire.writeNumber(uint64(sum))
	case check:
		answer := byte(ready)
		keys := wire.readKeys()
		s.mu.Lock()
		for _, key := range keys {
			if _, ok := s.values[key]; !ok {
				answer = notReady
			}
		}
		s.mu.Unlock()
		wire.writeByte(answer)
	case multiGet:
		keys := wire.readKeys()
		values := make([][]byte, len(keys))
		s.mu.Lock()
		for i, key := range keys {
			values[i] = s.values[key] // which nobody changes
		}
		s.mu.Unlock()
		for _, value := range values {
			wire.writeBytes(value)
		}
	default:
		wire.fail("request %d", kind)
	}
	if wire.in.Buffered() == 0 { // a client may send many before it reads
		wire.flush()
	}
}

// change replaces a value by what it becomes, at one moment, unless it is to stay as it is. It
// returns what is there then.
func (s *Server) change(wire *stream, key string, becomes func(old []byte) ([]byte, bool)) []byte {
	if wire.err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, there := s.values[key]
	value, changes := becomes(old)
	if !changes {
		return old
	}
	more := len(value) - len(old)
	if !there {
		more += len(key)
	}
	if s.bytes+more > mostBytes {
		wire.fail("there is no room for %q", key)
	}
	if wire.err != nil {
		return nil
	}
	s.bytes += more
	s.values[key] = value
	return value
}
