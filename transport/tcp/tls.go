package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/fault"
)

// identity is the certificate of a process, made for its lifetime. Peers know it by its hash, which
// is in the process's address.
type identity struct {
	certificate tls.Certificate
	hash        [32]byte
}

func newIdentity() (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// Peers compare the hash only, so the names and times mean nothing.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(der)}, nil
}

// config returns the configuration of one connection. The other side must have the certificate with
// the given hash; if it is nil, any, which the caller then compares.
func (id *identity) config(hash *[32]byte) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.certificate},
		ClientAuth:   tls.RequireAnyClientCert,
		// There is no authority and no name: the hash takes their place.
		InsecureSkipVerify:          true,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if hash != nil && certificateOf(&s) != *hash {
				return errStranger
			}
			return nil
		},
	}
}

func certificateOf(s *tls.ConnectionState) [32]byte {
	if len(s.PeerCertificates) != 1 {
		return [32]byte{}
	}
	return sha256.Sum256(s.PeerCertificates[0].Raw)
}

// stream is a new connection, plain or with TLS, until its socket is taken.
type stream struct {
	*net.TCPConn
	secure *secure // nil without TLS
	limit  uint8   // of its segments, if this side has dialled it
}

func (s *stream) Read(b []byte) (int, error) {
	if s.secure == nil {
		return s.TCPConn.Read(b)
	}
	return s.secure.tls.Read(b)
}

func (s *stream) Write(b []byte) (int, error) {
	if s.secure == nil {
		return s.TCPConn.Write(b)
	}
	return s.secure.tls.Write(b)
}

// CloseWrite ends this side's direction.
func (s *stream) CloseWrite() error {
	if s.secure != nil {
		s.secure.tls.CloseWrite()
	}
	return s.TCPConn.CloseWrite()
}

// Close ends the connection without TLS's farewell, which could wait.
func (s *stream) Close() error { return s.TCPConn.Close() }

// certificate returns the hash of the other side's certificate, zero without TLS.
func (s *stream) certificate() [32]byte {
	if s.secure == nil {
		return [32]byte{}
	}
	state := s.secure.tls.ConnectionState()
	return certificateOf(&state)
}

// secureBuffer is how much is read from a socket at once.
const secureBuffer = 64 << 10

// secure is TLS over a socket. At first it waits, as the net package does; once the socket is taken
// (attach) it does not: reading returns errWould, and what is written waits in out until flush.
type secure struct {
	tls   *tls.Conn
	conn  *net.TCPConn // nil once the socket is taken
	heard func()       // called at the first byte, if it is not nil
	fd    int
	iov   scatter
	in    []byte // read from the socket, but not by tls
	room  []byte
	gone  error // what ended reading

	mu     sync.Mutex // of out: tls may write an answer while it reads
	out    []byte
	begin  int // of what is left in out
	unsent atomic.Bool
}

// errWould is what reading returns where there is nothing to read now. TLS goes on after a
// temporary error.
var errWould net.Error = wouldWait{}

type wouldWait struct{}

func (wouldWait) Error() string   { return "nothing to read now" }
func (wouldWait) Timeout() bool   { return true }
func (wouldWait) Temporary() bool { return true }

// attach makes secure use a socket that does not block.
func (s *secure) attach(fd int) {
	s.fd, s.conn, s.room = fd, nil, make([]byte, secureBuffer)
}

// inner is the net.Conn under TLS.
type inner struct {
	*net.TCPConn
	s *secure
}

func (c inner) Read(b []byte) (int, error) {
	s := c.s
	if s.conn != nil {
		n, err := s.conn.Read(b)
		if n > 0 && s.heard != nil {
			s.heard()
			s.heard = nil
		}
		return n, err
	}
	if len(s.in) == 0 {
		if s.gone != nil {
			return 0, s.gone
		}
		n, _, errno := receiveInto(s.fd, nil, s.room, &s.iov)
		switch {
		case errno != 0 && again(errno):
			return 0, errWould
		case errno != 0:
			s.gone = errno
			return 0, errno
		case n == 0:
			s.gone = io.EOF
			return 0, io.EOF
		}
		s.in = s.room[:n]
	}
	n := copy(b, s.in)
	s.in = s.in[n:]
	return n, nil
}

func (c inner) Write(b []byte) (int, error) {
	s := c.s
	if s.conn != nil {
		return s.conn.Write(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, b...)
	s.unsent.Store(true)
	return len(b), nil
}

// read decrypts into b. n is 0 where nothing has arrived, and also at the end of the stream, which
// is io.EOF then.
func (s *secure) read(b []byte) (n int, err error) {
	n, err = s.tls.Read(b)
	switch {
	case n > 0 || errors.Is(err, errWould):
		return n, nil
	case s.gone != nil:
		return 0, s.gone
	}
	return 0, err
}

// write encrypts b, which leaves with flush.
func (s *secure) write(b []byte) error {
	_, err := s.tls.Write(b)
	return err
}

// flush sends what is encrypted. It returns EAGAIN if the socket takes no more.
func (s *secure) flush() syscall.Errno {
	if !s.unsent.Load() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.begin < len(s.out) {
		n, errno := sendFrom(s.fd, s.out[s.begin:])
		if errno != 0 {
			return errno
		}
		s.begin += n
	}
	s.out, s.begin = s.out[:0], 0
	s.unsent.Store(false)
	return 0
}

// client begins TLS on a connection that this side has dialled.
func (f *Fabric) client(nc *net.TCPConn, peer *address) *stream {
	s := &stream{TCPConn: nc}
	if f.identity != nil {
		s.secure = &secure{conn: nc}
		s.secure.tls = tls.Client(inner{nc, s.secure}, f.identity.config(&peer.certificate))
	}
	return s
}

// server begins TLS on an accepted connection.
func (f *Fabric) server(nc *net.TCPConn) *stream {
	s := &stream{TCPConn: nc}
	if f.identity != nil {
		s.secure = &secure{conn: nc}
		s.secure.tls = tls.Server(inner{nc, s.secure}, f.identity.config(nil))
	}
	return s
}

// protects returns an error unless this process and a peer both use TLS, or neither does.
func (f *Fabric) protects(peer *address, rank int) error {
	if with := peer.certificate != [32]byte{}; with != (f.identity != nil) {
		here, there := "without", "with"
		if !with {
			here, there = there, here
		}
		return fault.Peer(fault.Mismatch, rank, "tcp: %s opened TCP %s TLS, this process %s; "+
			"all processes need the same GOCCL_TLS", peer.who(), there, here)
	}
	return nil
}
