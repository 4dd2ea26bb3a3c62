package rdma_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// killCommand kills the process whose number follows.
const killCommand = "kill"

// rankArgument is the first argument of a rank; a spec follows.
const rankArgument = "rdma-rank"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == rankArgument {
		if err := beRank(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The addresses of two machines on one wire, and the port at which they take commands.
const (
	firstAddress  = "192.0.2.1"
	secondAddress = "192.0.2.2"
	commandPort   = "4000"
)

// guest is where a virtual machine takes commands.
type guest string

// here returns the machine in which this process runs, and skips the test where that is none of
// ci/rdma-vm.sh.
func here(t *testing.T) guest {
	t.Helper()
	if os.Getenv("RDMA_VM_GUEST") == "" {
		t.Skip("needs a virtual machine with an RDMA adapter: make test-rdma runs it there")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go serve(l)
	return guest(l.Addr().String())
}

// two returns this machine and the other one on its wire. In the second machine it takes the
// commands of the first, and does not return: it is ended with that.
func two(t *testing.T) [2]guest {
	t.Helper()
	first := here(t)
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		switch ip, _, _ := net.ParseCIDR(a.String()); ip.String() {
		case firstAddress:
			return [2]guest{first, guest(net.JoinHostPort(secondAddress, commandPort))}
		case secondAddress:
			l, err := net.Listen("tcp", net.JoinHostPort(secondAddress, commandPort))
			require.NoError(t, err)
			require.NoError(t, serve(l))
		}
	}
	t.Skip("needs two virtual machines: make test-rdma runs it there")
	return [2]guest{}
}

// serve runs a command for each connection: a first line names it, the connection is its input and
// its output, and ends with it.
func serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := perform(conn.(*net.TCPConn)); err != nil {
				fmt.Fprintln(conn, err)
			}
		}()
	}
}

func perform(conn *net.TCPConn) error {
	line, err := bufio.NewReader(conn).ReadBytes('\n') // nobody sends more before the command asks
	if err != nil {
		return err
	}
	var words []string
	if err := json.Unmarshal(line, &words); err != nil {
		return err
	}
	if words[0] == killCommand { // without a process, which would take some of the time that is measured
		pid, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	file, err := conn.File()
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = file, file, file
	return cmd.Run()
}

// command has the machine run a command. The machine may still start.
func (g guest) command(t *testing.T, words ...string) net.Conn {
	t.Helper()
	text, err := json.Marshal(words)
	require.NoError(t, err)
	var conn net.Conn
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if conn, err = net.DialTimeout("tcp", string(g), patience); err == nil || time.Now().After(end) {
			break
		}
	}
	require.NoError(t, err)
	_, err = conn.Write(append(text, '\n'))
	require.NoError(t, err)
	return conn
}

// run runs a command to its end; it has to say nothing.
func (g guest) run(t *testing.T, words ...string) {
	t.Helper()
	conn := g.command(t, words...)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	said, err := io.ReadAll(conn)
	require.NoError(t, err, "%v", words)
	require.Empty(t, string(said), "%v", words)
}
