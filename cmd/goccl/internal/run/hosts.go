package run

import (
	"bufio"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

// The launchers of several hosts tell each other of the first rank that fails, so that all end
// their ranks: those of hosts 1, 2, … are connected with that of host 0, which passes on what it
// hears. Where ranks of several hosts fail at about the same time, what host 0 has heard first
// counts for all. It listens at the port after --port. The two prove to each other that they know
// the job's secret (GOCCL_SECRET_FILE), or, without one, that they are launchers.

// failure is the end of a job, as one launcher tells it to the others.
type failure struct {
	Why    string `json:"why"`
	Status int    `json:"status"` // of goccl
}

// letter is what launchers send: a line of JSON. The first ones prove who they are.
type letter struct {
	Nonce   string   `json:"nonce,omitempty"`
	Proof   string   `json:"proof,omitempty"`
	Host    int      `json:"host"`
	Hosts   int      `json:"hosts,omitempty"`
	Failure *failure `json:"failure,omitempty"`
	Heard   bool     `json:"heard,omitempty"` // it knows the failure that counts
	Bye     bool     `json:"bye,omitempty"`   // all ranks of the host have ended well
}

// Spans of time.
const (
	missSpan   = 10 * time.Second       // after which a launcher whose connection has broken is lost
	proofSpan  = 5 * time.Second        // for a launcher to prove itself
	redialEach = 100 * time.Millisecond // between attempts to connect
	quietSpan  = 30 * time.Second       // after which a launcher says that it has found no other
	tellSpan   = time.Second            // for a letter to be taken
)

const mostLetter = 16 << 10

// hosts is the launchers of the other hosts, as this one knows them.
type hosts struct {
	self, size int
	address    string // of host 0's launcher
	secret     []byte
	failed     chan failure // the first one of another host
	printed    func(string)

	begun  time.Time
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu    sync.Mutex
	conns map[int]*lane // by host
	met   map[int]bool  // have been connected
	gone  map[int]bool  // have said goodbye
	lost  map[int]bool  // are not there any more, and have not
	heard map[int]bool  // know, as they have said, the failure that counts
	first *failure      // that is known here
	own   *failure      // of this host
	final *failure      // that host 0 has known first: what all end with
	well  bool          // the ranks of this host have ended well
	busy  int           // failures that are being passed on
	come  chan struct{} // closed when a lane comes or goes
}

// lane is the connection to a launcher.
type lane struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex // of writing
}

func (l *lane) send(m letter) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn.SetWriteDeadline(time.Now().Add(tellSpan))
	_, err = l.conn.Write(append(text, '\n'))
	return err
}

func (l *lane) receive() (m letter, err error) {
	line, err := l.in.ReadSlice('\n')
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(line, &m)
}

// meetHosts begins to look for the other launchers. The ranks do not wait for that.
func meetHosts(self, size int, address string, port int, printed func(string)) (*hosts, error) {
	var secret []byte
	if file := os.Getenv("GOCCL_SECRET_FILE"); file != "" {
		var err error
		if secret, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("GOCCL_SECRET_FILE: %w", err)
		}
	}
	h := newHosts(self, size, net.JoinHostPort(address, strconv.Itoa(port+1)), secret, printed)
	if self == 0 {
		listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port+1)))
		if err != nil {
			h.cancel()
			return nil, fmt.Errorf("the launchers of the other hosts cannot be waited for: %w", err)
		}
		context.AfterFunc(h.ctx, func() { listener.Close() })
		h.ended.Go(func() { h.accept(listener) })
	} else {
		h.ended.Go(h.reach)
	}
	return h, nil
}

func newHosts(self, size int, address string, secret []byte, printed func(string)) *hosts {
	h := &hosts{self: self, size: size, address: address, secret: secret, printed: printed,
		failed: make(chan failure, 1), begun: time.Now(), conns: map[int]*lane{}, met: map[int]bool{},
		gone: map[int]bool{}, lost: map[int]bool{}, heard: map[int]bool{}, come: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// proof shows that a launcher knows the secret, for a number that the other one has chosen.
func (h *hosts) proof(nonce string, host int) string {
	mac := hmac.New(sha256.New, h.secret)
	fmt.Fprintf(mac, "goccl run %s %d %d", nonce, host, h.size)
	return hex.EncodeToString(mac.Sum(nil))
}

func newNonce() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

var errStranger = errors.New("it is not the launcher of another host of this job, or has another GOCCL_SECRET_FILE")

// accept takes the connections of the other launchers.
func (h *hosts) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if h.ctx.Err() != nil {
			return
		}
		if err != nil {
			time.Sleep(redialEach)
			continue
		}
		h.ended.Go(func() {
			l := newLane(conn)
			defer context.AfterFunc(h.ctx, func() { conn.Close() })()
			nonce := newNonce()
			conn.SetDeadline(time.Now().Add(proofSpan))
			err := l.send(letter{Nonce: nonce, Hosts: h.size})
			m := letter{}
			if err == nil {
				m, err = l.receive()
			}
			if err != nil || m.Hosts != h.size || m.Host < 1 || m.Host >= h.size ||
				!hmac.Equal([]byte(m.Proof), []byte(h.proof(nonce, m.Host))) {
				conn.Close()
				return
			}
			if l.send(letter{Proof: h.proof(m.Nonce, 0)}) == nil {
				conn.SetDeadline(time.Time{})
				h.talk(m.Host, l)
			}
		})
	}
}

func newLane(conn net.Conn) *lane {
	conn.(*net.TCPConn).SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second,
		Interval: 2 * time.Second, Count: 3})
	return &lane{conn: conn, in: bufio.NewReaderSize(conn, mostLetter)}
}

// reach keeps a connection with the launcher of host 0.
func (h *hosts) reach() {
	said := false
	for h.ctx.Err() == nil {
		l, err := h.dial()
		if err == nil {
			said = true
			if h.talk(0, l); h.left(0) {
				return
			}
		} else if !said && time.Since(h.begun) > quietSpan {
			said = true
			h.printed(fmt.Sprintf("goccl run: the launcher of host 0 does not answer at %s (%v): a rank that fails does not "+
				"end those of other hosts\n", h.address, err))
		}
		select {
		case <-h.ctx.Done():
		case <-time.After(redialEach):
		}
	}
}

func (h *hosts) dial() (*lane, error) {
	dialer := net.Dialer{Timeout: proofSpan}
	conn, err := dialer.DialContext(h.ctx, "tcp", h.address)
	if err != nil {
		return nil, err
	}
	l := newLane(conn)
	defer context.AfterFunc(h.ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(proofSpan))
	m, err := l.receive()
	nonce := newNonce()
	if err == nil && m.Hosts != h.size {
		err = fmt.Errorf("it has --hosts %d", m.Hosts)
	}
	if err == nil {
		err = l.send(letter{Nonce: nonce, Proof: h.proof(m.Nonce, h.self), Host: h.self, Hosts: h.size})
	}
	if err == nil {
		if m, err = l.receive(); err != nil || !hmac.Equal([]byte(m.Proof), []byte(h.proof(nonce, 0))) {
			err = errStranger
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return l, nil
}

// talk hears a launcher until its connection ends. If that is not in order, the host is lost,
// unless it is there again soon.
func (h *hosts) talk(host int, l *lane) {
	stop := context.AfterFunc(h.ctx, func() { l.conn.Close() })
	defer stop()
	defer l.conn.Close()
	h.mu.Lock()
	if old := h.conns[host]; old != nil {
		old.conn.Close() // it has come again
	}
	h.conns[host] = l
	first, well := h.first, h.well
	h.mu.Unlock()
	if first != nil || well {
		l.send(letter{Host: h.self, Failure: first, Bye: well})
	}
	h.mu.Lock()
	h.met[host] = true
	h.change()
	h.mu.Unlock()
	for {
		m, err := l.receive()
		if err != nil {
			h.missing(host, l)
			return
		}
		switch {
		case m.Failure != nil:
			h.working(1)
			h.hear(host, *m.Failure)
			h.judge(l, m.Failure)
			h.working(-1)
		case m.Heard:
			h.mu.Lock()
			h.heard[host] = true
			h.change()
			h.mu.Unlock()
		case m.Bye:
			h.mu.Lock()
			h.gone[host] = true
			h.mu.Unlock()
		}
	}
}

// change wakes those that wait for a connection to come or go. The caller holds mu.
func (h *hosts) change() {
	close(h.come)
	h.come = make(chan struct{})
}

// hear takes the first failure, and passes it on.
func (h *hosts) hear(from int, f failure) {
	if h.know(&f) {
		h.send(from, letter{Host: h.self, Failure: &f})
		h.failed <- f
	}
}

// working counts the failures that are being passed on: the launcher does not leave meanwhile.
func (h *hosts) working(more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy += more
	h.change()
}

// judge answers a host that tells host 0 of a failure with the one that counts. That host notes it,
// and says so.
func (h *hosts) judge(l *lane, told *failure) {
	if h.self == 0 {
		h.mu.Lock()
		final := h.final
		h.mu.Unlock()
		l.send(letter{Failure: final})
		return
	}
	l.send(letter{Host: h.self, Heard: true})
	h.mu.Lock()
	h.final = told
	h.mu.Unlock()
}

// know notes a failure, and reports whether it is the first one.
func (h *hosts) know(f *failure) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first != nil {
		return false
	}
	h.first = f
	if h.self == 0 {
		h.final = f
	}
	return true
}

// send sends a letter to all launchers but one.
func (h *hosts) send(but int, m letter) {
	var sending sync.WaitGroup
	h.mu.Lock()
	for host, l := range h.conns {
		if host != but {
			sending.Go(func() { l.send(m) })
		}
	}
	h.mu.Unlock()
	sending.Wait()
}

// missing waits for a launcher whose connection has broken, which is the end of the job if it does
// not come again.
func (h *hosts) missing(host int, l *lane) {
	h.mu.Lock()
	if h.conns[host] == l {
		delete(h.conns, host)
		h.change()
	}
	h.mu.Unlock()
	if h.left(host) || h.ctx.Err() != nil {
		return
	}
	time.AfterFunc(missSpan, func() {
		h.mu.Lock()
		lost := h.conns[host] == nil && !h.gone[host] && h.ctx.Err() == nil
		h.lost[host] = lost
		h.mu.Unlock()
		if lost {
			h.working(1)
			h.hear(host, failure{Why: fmt.Sprintf("the launcher of host %d is gone", host), Status: 1})
			h.working(-1)
		}
	})
}

// left reports whether a host is not waited for any more.
func (h *hosts) left(host int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone[host] || h.lost[host]
}

// tell says to the others how the ranks of this host have ended. Who comes later hears it then.
func (h *hosts) tell(err error) {
	m := letter{Host: h.self, Bye: err == nil}
	if err != nil {
		m.Failure = &failure{Why: fmt.Sprintf("host %d: %s", h.self, cli.Message(err)), Status: cli.Status(err)}
	}
	h.mu.Lock()
	h.own, h.well = m.Failure, err == nil
	h.mu.Unlock()
	if err != nil && !h.know(m.Failure) && h.self == 0 {
		return // the others are told of the one before it
	}
	h.send(h.self, m)
}

// stay waits when the ranks of this host have ended. The launcher of host 0 passes on what the
// others say, and so stays until all have left, or know the failure that counts. The others stay
// until they have told how their ranks have ended, and those with a failure until they know which
// one counts. Those that have not come yet have missSpan to come, from the beginning on; those that
// have, as long to answer, from the failure on. A signal ends the wait. The result is the failure
// of another host that counts.
func (h *hosts) stay(signals <-chan os.Signal) *failure {
	late, silent := time.After(time.Until(h.begun.Add(missSpan))), time.After(missSpan)
	for over, lost := false, false; ; {
		h.mu.Lock()
		if h.first == nil {
			silent, lost = time.After(missSpan), false
		}
		done, come, counts := h.done(over, lost), h.come, cmp.Or(h.final, h.first)
		if h.own != nil && counts != nil && *counts == *h.own {
			counts = nil
		}
		h.mu.Unlock()
		if done {
			return counts
		}
		select {
		case <-come:
		case <-late:
			over = true
		case <-silent:
			lost = true
		case <-signals:
			return nil
		}
	}
}

// done reports whether this launcher may leave. over means that those that have not come yet are
// not waited for, and lost that neither are those that do not answer. The caller holds mu.
func (h *hosts) done(over, lost bool) bool {
	if h.busy > 0 {
		return false
	}
	if h.self != 0 {
		if h.first != nil {
			return h.final != nil || h.lost[0] || lost
		}
		return h.met[0] || h.gone[0] || over
	}
	for host := 1; host < h.size; host++ {
		left := h.gone[host] || h.lost[host] || h.first != nil && (h.heard[host] || lost)
		if !left && (h.met[host] || !over) {
			return false
		}
	}
	return true
}

// close ends the connections. What was sent last may still be under way, and would be lost if a
// letter came to a connection that is closed: host 0, which stays until all is said, closes first.
func (h *hosts) close() {
	if h.self != 0 {
		h.mu.Lock()
		h.gone[0] = true
		l := h.conns[0]
		h.mu.Unlock()
		if l != nil && l.conn.(*net.TCPConn).CloseWrite() == nil {
			until := time.AfterFunc(tellSpan, h.cancel)
			defer until.Stop()
			h.ended.Wait()
		}
	}
	h.cancel()
	h.ended.Wait()
}
