package rdma

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/rdma/verbs"
	"github.com/goccl/goccl/transport/tcp"
)

// peerOf names the variable that makes the test binary the other process of a ping-pong: how it
// waits, and the address of the first one.
const peerOf = "GOCCL_TEST_PING_PONG"

func TestMain(m *testing.M) {
	how, address, ok := strings.Cut(os.Getenv(peerOf), " ")
	if !ok {
		os.Exit(m.Run())
	}
	if err := answer(player{polls: how == polling}, address); err != nil {
		fmt.Fprintln(os.Stderr, "the other process:", err)
		os.Exit(1)
	}
}

const polling, sleeping = "polling", "sleeping"

// BenchmarkPingPongOnAdapter sends a fragment there and back between two processes that poll all
// the time, as ibv_rc_pingpong does, or sleep until something comes, as ibv_rc_pingpong -e does.
func BenchmarkPingPongOnAdapter(b *testing.B) {
	library := onAdapter(b)
	for _, how := range []string{polling, sleeping} {
		for _, bytes := range []int{8, 4096, 32 << 10} {
			b.Run(fmt.Sprintf("%s/%d", how, bytes), func(b *testing.B) {
				p := player{polls: how == polling}
				require.NoError(b, p.open(library))
				defer p.f.Close()
				child := exec.Command(os.Args[0])
				child.Env = append(os.Environ(), peerOf+"="+how+" "+hex.EncodeToString(p.f.Address()))
				child.Stderr = os.Stderr
				out, err := child.StdoutPipe()
				require.NoError(b, err)
				require.NoError(b, child.Start())
				line, err := bufio.NewReader(out).ReadString('\n')
				require.NoError(b, err)
				require.NoError(b, p.meet(strings.TrimSpace(line), 0))
				pass := func() {
					err := p.serve(bytes)
					if n, failed := p.take(); err != nil || failed != nil || n != bytes { // require takes time
						b.Fatal(n, err, failed)
					}
				}
				pass()
				require.True(b, p.up())
				b.ResetTimer()
				for range b.N {
					pass()
				}
				b.StopTimer()
				require.NoError(b, p.link.Close())
				require.NoError(b, child.Wait())
			})
		}
	}
}

// player is one process of a ping-pong.
type player struct {
	end
	peer  string
	polls bool
}

func (p *player) open(library verbs.Library) error {
	p.doorbell = park.NewDoorbell()
	base, err := tcp.New(tcp.Options{Doorbell: p.doorbell, Interfaces: "lo"})
	if err != nil {
		return err
	}
	f, err := New(Options{TCP: base, Library: library, Doorbell: p.doorbell, Wishes: Wishes{GID: AnyGID}})
	p.f = whole{f, base}
	return err
}

// meet joins the process with an address, in hexadecimal.
func (p *player) meet(address string, rank int) error {
	peer, err := hex.DecodeString(address)
	if err != nil {
		return err
	}
	p.peer = string(peer)
	s := transport.Session{ID: [16]byte{1}, Rank: rank, Peer: 1 - rank, Channels: 1}
	p.link, err = p.f.Connect(context.Background(), peer, s)
	return err
}

func (p *player) up() bool { return p.f.pairs[p.peer].ports() != "" }

// wait returns when look reports true, or the peer has left.
func (p *player) wait(look func() bool) error {
	for {
		for range 20 {
			if look() {
				return nil
			}
			p.f.Poll()
		}
		if err := p.link.Err(); err != nil {
			return err
		}
		if p.polls {
			continue
		}
		ticket := p.doorbell.Prepare()
		p.f.Arm()
		p.f.Poll()
		if look() {
			p.doorbell.Cancel()
			return nil
		}
		p.doorbell.Sleep(ticket, hang)
	}
}

// serve sends a fragment.
func (p *player) serve(bytes int) error {
	ch := p.link.Channel(0)
	return p.wait(func() bool {
		space := ch.Reserve(bytes)
		if len(space) < bytes {
			return false
		}
		ch.Commit(bytes, &transport.Meta{})
		return true
	})
}

// take takes a fragment, and returns its length.
func (p *player) take() (n int, err error) {
	ch := p.link.Channel(0)
	err = p.wait(func() bool {
		payload, m := ch.Look()
		if m == nil {
			return false
		}
		n = len(payload)
		ch.Release()
		return true
	})
	return n, err
}

// answer is the other process: it sends back as much as comes, until the first one leaves.
func answer(p player, address string) error {
	library, err := verbs.Open()
	if err != nil {
		return err
	}
	if err := p.open(library); err != nil {
		return err
	}
	defer p.f.Close()
	fmt.Println(hex.EncodeToString(p.f.Address()))
	if err := p.meet(address, 1); err != nil {
		return err
	}
	for {
		n, err := p.take()
		if err != nil {
			if inOrder(err) {
				return nil
			}
			return err
		}
		if err := p.serve(n); err != nil {
			return err
		}
	}
}
