package netlab_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/netlab"
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// built is the folder of the program with, once it is built.
var built string

var with = sync.OnceValues(func() (program string, err error) {
	if built, err = os.MkdirTemp("", "hosts"); err != nil {
		return "", err
	}
	program = filepath.Join(built, "with")
	if said, err := exec.Command("go", "build", "-o", program, "./with").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return program, nil
})

// script runs a shell script inside a network of two hosts, and returns its output. It skips the
// test where the system refuses networks.
func script(t *testing.T, wires []string, text string) string {
	t.Helper()
	program, err := with()
	require.NoError(t, err)
	if err := netlab.Possible(); err != nil {
		t.Skip(err)
	}
	var words []string
	for _, w := range wires {
		words = append(words, "-wire", w)
	}
	cmd := exec.Command(program, append(words, "--", "sh", "-ec", text)...)
	cmd.WaitDelay = time.Second
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// echo is a shell command: host 1 answers on a port, host 0 prints how many milliseconds ten bytes
// there and back take at least, and whether 4 MiB arrive whole.
const echo = `cat > $DIR/echo.py <<'END'
import hashlib, socket, sys, time
side, address, ready = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
if side == "answer":
    with socket.create_server((address, 4000), family=family) as server:
        open(ready, "w").close()
        s, _ = server.accept()
        for _ in range(20):
            s.sendall(s.recv(10))
        data = b""
        while len(data) < 4 << 20:
            data += s.recv(1 << 20)
        s.sendall(hashlib.sha256(data).digest())
else:
    open(ready).close()  # a pipe: waits until the other host listens
    s = socket.create_connection((address, 4000), 10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(20):
        begun = time.monotonic()
        s.sendall(b"0123456789")
        s.recv(10)
        times.append(time.monotonic() - begun)
    data = bytes(range(256)) * (16 << 10)
    begun = time.monotonic()
    s.sendall(data)
    whole = s.recv(32) == hashlib.sha256(data).digest()
    print(f"{min(times) * 1e3:.3f} ms, whole: {whole}, {time.monotonic() - begun:.3f} s")
END
`

// ask has host 0 measure the way to an address of host 1, by echo.
func ask(t *testing.T, wire, address string) (millis, seconds float64) {
	said := script(t, []string{wire}, "DIR="+t.TempDir()+"\n"+echo+fmt.Sprintf(
		"mkfifo $DIR/ready\nip netns exec host1 python3 $DIR/echo.py answer %s $DIR/ready &\n"+
			"ip netns exec host0 python3 $DIR/echo.py ask %s $DIR/ready\nwait",
		address, address))
	var whole string
	_, err := fmt.Sscanf(said, "%f ms, whole: %s %f s", &millis, &whole, &seconds)
	require.NoError(t, err, said)
	require.Equal(t, "True,", whole)
	return millis, seconds
}

func TestSite(t *testing.T) {
	millis, _ := ask(t, "delay=2s,site=2", "10.77.0.2")
	require.Less(t, millis, 1000.0, "both hosts are at one place")
}

func TestWires(t *testing.T) {
	for _, tt := range []struct {
		wire, address string
		least         float64 // ms of a round trip
		long          float64 // s that 4 MiB take at least
	}{
		{"plain", "10.77.0.2", 0, 0},
		{"delay=20ms", "10.77.0.2", 20, 0.02},
		{"ipv6", "fd77::0:2", 0, 0},
		{"ipv6,delay=5ms", "fd77::0:2", 5, 0},
		{"rate=200mbit", "10.77.0.2", 0, 0.15},
		{"loss=1%", "10.77.0.2", 0, 0},
		{"flow=200mbit,delay=1ms", "10.77.0.2", 1, 0.15},
		{"ipv6,flow=200mbit", "fd77::0:2", 0, 0.15},
	} {
		t.Run(tt.wire, func(t *testing.T) {
			millis, seconds := ask(t, tt.wire, tt.address)
			require.GreaterOrEqual(t, millis, tt.least)
			require.GreaterOrEqual(t, seconds, tt.long)
		})
	}
}

// The namespaces, and the names of a run, are gone after it.
func TestNothingIsLeft(t *testing.T) {
	before, err := os.ReadDir("/sys/class/net")
	require.NoError(t, err)
	said := script(t, []string{"plain", "delay=1ms"}, "ip netns list; ls /sys/class/net; ip -br link")
	require.Contains(t, said, "host0")
	require.Contains(t, said, "host1")
	require.Contains(t, said, "port0.1")
	after, err := os.ReadDir("/sys/class/net")
	require.NoError(t, err)
	require.Len(t, after, len(before))
	names, _ := os.ReadDir("/run/netns")
	for _, n := range names {
		require.False(t, strings.HasPrefix(n.Name(), "host"))
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		n    netlab.Network
		says string
	}{
		{netlab.Network{Hosts: 1, Wires: make([]netlab.Wire, 1)}, "1 hosts"},
		{netlab.Network{Hosts: 2}, "0 wires"},
		{netlab.Network{Hosts: 2, Wires: []netlab.Wire{{Delay: -1}}}, "wire 0: delay"},
		{netlab.Network{Hosts: 2, Wires: []netlab.Wire{{Site: -1}}}, "wire 0: site of -1 hosts"},
		{netlab.Network{Hosts: 2, Wires: []netlab.Wire{{}, {Loss: 0.6}}}, "wire 1: loss"},
		{netlab.Network{Hosts: 2, Wires: []netlab.Wire{{Flow: -1}}}, "wire 0: flow"},
		{netlab.Network{Hosts: 2, Wires: []netlab.Wire{{Most: 100}}}, "wire 0: most"},
		{netlab.Network{Hosts: 2, Wires: make([]netlab.Wire, 1)}, ""},
	} {
		if err := tt.n.Validate(); tt.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, tt.says)
		}
	}
}
