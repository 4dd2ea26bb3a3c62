package drill

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

// leastFlipped is the length of pieces in which a byte is changed: credit alone is shorter, and may
// be repeated by later credit before anybody misses it.
const leastFlipped = 49

// relay is a process between the ranks of a drill and one host's, and breaks what
// passes. It hears lines and answers each with one:
//
//	to 10.77.0.2:4000   the port on which it takes connections for that address
//	reset               how many connections it has broken
//	flip                the number of bytes of the piece in which it has changed one
type relay struct {
	mu    sync.Mutex
	conns map[*net.TCPConn]bool
	flip  chan int // takes one value when a byte has been changed
	asked bool
}

func playRelay([]string, io.Writer) error {
	r := &relay{conns: map[*net.TCPConn]bool{}, flip: make(chan int, 1)}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "to":
			port, err := r.listen(rest)
			if err != nil {
				return err
			}
			fmt.Println(port)
		case "reset":
			fmt.Println(r.reset())
		case "flip":
			r.mu.Lock()
			r.asked = true
			r.mu.Unlock()
			fmt.Println(<-r.flip)
		default:
			return fmt.Errorf("%s is for goccl drill's own use", relayProcess)
		}
	}
	return in.Err()
}

// listen begins to take connections for an address.
func (r *relay) listen(to string) (port uint16, err error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(at.Addr(), 0).String())
	if err != nil {
		return 0, err
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil { // the rank has ended: who dials it is to be refused
				l.Close()
				in.(*net.TCPConn).SetLinger(0)
				in.Close()
				return
			}
			r.join(in.(*net.TCPConn), out.(*net.TCPConn))
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port), nil
}

// join passes on what comes from two connections.
func (r *relay) join(a, b *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[a], r.conns[b] = true, true
	var group sync.WaitGroup
	group.Go(func() { r.pump(a, b) })
	group.Go(func() { r.pump(b, a) })
	go func() {
		group.Wait()
		a.Close()
		b.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, a)
		delete(r.conns, b)
	}()
}

// pump passes on what from sends, and its end.
func (r *relay) pump(from, to *net.TCPConn) {
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		r.mu.Lock()
		flipped := r.asked && n >= leastFlipped
		if flipped {
			r.asked = false
			piece[n/2] ^= 0x10
		}
		r.mu.Unlock()
		if n > 0 {
			if _, failed := to.Write(piece[:n]); err == nil {
				err = failed
			}
		}
		if flipped { // it is there before anybody is told to stop
			r.flip <- n
		}
		if err != nil {
			to.CloseWrite()
			return
		}
	}
}

// reset breaks all connections in both directions, and returns how many there were.
func (r *relay) reset() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.SetLinger(0)
		c.Close()
	}
	return len(r.conns) / 2
}

// relayed is a relay as the drill sees it.
type relayed struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// newRelayed starts a relay; prefix comes before its command.
func newRelayed(self string, prefix []string) (*relayed, error) {
	words := append(prefix, self, "drill", relayProcess)
	r := &relayed{cmd: exec.Command(words[0], words[1:]...)}
	r.cmd.SysProcAttr, r.cmd.Stderr = ranks.OwnGroup(), os.Stderr
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	return r, r.cmd.Start()
}

// ask says a line and returns the number that the relay answers.
func (r *relayed) ask(line string) (n int, err error) {
	if _, err = fmt.Fprintln(r.in, line); err != nil {
		return 0, err
	}
	_, err = fmt.Fscanln(r.out, &n)
	return n, err
}

func (r *relayed) end() {
	r.in.Close()
	r.cmd.Process.Kill()
	r.cmd.Wait()
}
