package tcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/stretchr/testify/require"
)

func dialRaw(t *testing.T, f *Fabric) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", f.self.endpoints[0].addrPort().String())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(hang))
	return nc
}

// requireEnd waits until the other side has closed the connection. It must not have sent anything.
func requireEnd(t *testing.T, nc net.Conn) {
	t.Helper()
	said, err := io.ReadAll(nc)
	require.Empty(t, said)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection stays open")
}

// TestGarbage sends nonsense to the listening port; ranks can still connect there.
func TestGarbage(t *testing.T) {
	a, b, _, doorbellB := ordered(t, func(o *Options) { o.HandshakeTimeout = 300 * time.Millisecond })
	noise := make([]byte, 1<<16)
	rand.Read(noise)
	say := func(dialer, acceptor *[16]byte) *hello {
		return makeHello(helloFirst, dialer, acceptor, epoch{}, nonce{})
	}
	wrongTarget, unknown := say(&a.self.id, &a.self.id), say(&[16]byte{1}, &b.self.id)
	newer := say(&a.self.id, &b.self.id)
	newer[len(helloMagic)]++
	var conns []net.Conn
	for _, say := range [][]byte{noise, []byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{0}, helloBytes),
		wrongTarget[:], newer[:], unknown[:], wrongTarget[:20], nil} {
		nc := dialRaw(t, b)
		nc.Write(say)
		conns = append(conns, nc)
	}
	for _, nc := range conns {
		requireEnd(t, nc)
	}
	la, lb := join(t, a, b, 1, 1)
	commit(t, la.Channel(0), "hello")
	require.Equal(t, "hello", receive(t, b, doorbellB, lb.Channel(0)))
	require.EqualValues(t, 1, b.live.Load())
}

// TestImpostor knows the ids of both processes but not their secrets.
func TestImpostor(t *testing.T) {
	a, b, _, _ := ordered(t, nil)
	join(t, a, b, 1, 1)
	liar, victim := *a.self, *b.self
	liar.secret[0] ^= 1
	nc := dialRaw(t, b)
	_, err := dialHandshake(nc, makeHello(helloFirst, &liar.id, &victim.id, epoch{}, nonce{}), &liar, &victim)
	require.ErrorIs(t, err, errStranger)
	// The right answer cannot be found by repeating the other side's proof.
	h := makeHello(helloFirst, &a.self.id, &b.self.id, epoch{}, nonce{})
	nc = dialRaw(t, b)
	nc.Write(h[:])
	var reply [replyBytes]byte
	_, err = io.ReadFull(nc, reply[:])
	require.NoError(t, err)
	nc.Write(reply[nonceBytes:])
	requireEnd(t, nc)
	// The dialer detects an acceptor that is not the peer.
	server, client := net.Pipe()
	go func() {
		if h, err := readHello(server, &victim); err == nil {
			acceptHandshake(server, h, &liar, &victim, epoch{}, 0)
		}
	}()
	_, err = dialHandshake(client, h, a.self, b.self)
	require.ErrorIs(t, err, errStranger)
	require.EqualValues(t, 1, b.live.Load())
}

// TestStrangersAreFew opens one connection without proof more than there are places, in two cases:
// silent connections, and connections that have sent a hello but that this process does not wait
// for. One of them is closed, and a peer connects while the others stay: their time is longer than
// the test's.
func TestStrangersAreFew(t *testing.T) {
	const places = 3
	for _, tt := range []struct {
		name string
		say  func(b *Fabric, n byte) []byte
	}{
		{"silent", func(*Fabric, byte) []byte { return helloStart() }},
		{"waiting", func(b *Fabric, n byte) []byte {
			return makeHello(helloFirst, &[16]byte{n}, &b.self.id, epoch{}, nonce{})[:]
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b, _, doorbellB := ordered(t, func(o *Options) {
				o.MaxUnauthenticated, o.HelloTimeout, o.HandshakeTimeout = places, 2*hang, 2*hang
			})
			ends := make(chan error, places+1)
			for i := range places + 1 {
				nc := dialRaw(t, b)
				_, err := nc.Write(tt.say(b, byte(i)))
				require.NoError(t, err)
				go func() {
					_, err := nc.Read(make([]byte, 1))
					ends <- err
				}()
			}
			require.NotErrorIs(t, <-ends, os.ErrDeadlineExceeded, "nobody was turned away")
			la, lb := join(t, a, b, 1, 1)
			commit(t, la.Channel(0), "meanwhile")
			require.Equal(t, "meanwhile", receive(t, b, doorbellB, lb.Channel(0)))
			require.NoError(t, b.Close())
			for range places {
				require.NotErrorIs(t, <-ends, os.ErrDeadlineExceeded, "the connection of a stranger stays open")
			}
		})
	}
}

// TestSilence has strangers connect and stop before or in the middle of a hello: they have only the
// time for a hello.
func TestSilence(t *testing.T) {
	a, b, _, _ := ordered(t, func(o *Options) { o.HelloTimeout, o.HandshakeTimeout = 50*time.Millisecond, 2*hang })
	for _, say := range [][]byte{nil, helloStart()} {
		nc := dialRaw(t, b)
		nc.Write(say)
		requireEnd(t, nc)
	}
	join(t, a, b, 1, 1)
}

// helloStart returns the first byte of a hello.
func helloStart() []byte { return []byte(helloMagic[:1]) }

// TestSlowLoris has strangers take every place, and each place that becomes free at once, for
// longer than a peer waits.
func TestSlowLoris(t *testing.T) {
	const attackers = 300 // more than there are places
	a, b, _, doorbellB := ordered(t, func(o *Options) { o.HandshakeTimeout = 2 * hang })
	over, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	var tries atomic.Int64
	for range attackers {
		group.Go(func() {
			for over.Err() == nil {
				nc, err := net.Dial("tcp", b.self.endpoints[0].addrPort().String())
				if err != nil {
					continue
				}
				tries.Add(1)
				stop := context.AfterFunc(over, func() { nc.Close() })
				nc.Write(helloStart())
				nc.Read(make([]byte, 1)) // until it is closed
				stop()
				nc.Close()
			}
		})
	}
	defer group.Wait()
	defer end()
	await(t, b, doorbellB, "the attack is under way", func() bool { return tries.Load() > attackers })
	la, lb := join(t, a, b, 1, 1)
	commit(t, la.Channel(0), "meanwhile")
	require.Equal(t, "meanwhile", receive(t, b, doorbellB, lb.Channel(0)))
	require.NoError(t, over.Err())
}

// TestViolations has an authenticated peer that breaks the protocol: all its links end with an
// error that names it, and other links go on.
func TestViolations(t *testing.T) {
	spec := transport.Session{ID: [16]byte{1}, Rank: 1, Peer: 0, Channels: 2}
	many := [][]byte{}
	for range maxFragments + 1 {
		many = append(many, frameOf(header{kind: kindData}, nil))
	}
	long := [][]byte{}
	for range maxLong<<maxScale + 1 { // the most room that there can be
		long = append(long, frameOf(header{kind: kindData, channel: 1}, make([]byte, maxPayload)))
	}
	tooLong := frameOf(header{kind: kindData}, nil)
	tooLong[8+2] = 2 // 128 KiB
	for _, tt := range []struct {
		name, says string
		frames     [][]byte
	}{
		{"too many fragments", "without credit", many},
		{"too many bytes", "without credit", long},
		{"long fragment", "fragment of 131072 bytes", [][]byte{tooLong}},
		{"credit from nowhere", "credit for fragments",
			[][]byte{frameOf(header{kind: kindCredit, credit: 1}, nil)}},
		{"credit taken back", "credit for fragments",
			[][]byte{frameOf(header{kind: kindCredit, credit: ^uint32(0)}, nil)}},
		{"unknown channel", "channel 2 of 2", [][]byte{frameOf(header{kind: kindData, channel: 2}, nil)}},
		{"unknown session", "not open", [][]byte{frameOf(header{kind: kindData, session: 1}, nil)}},
		{"unknown kind", "unknown kind", [][]byte{frameOf(header{kind: 9}, nil)}},
		{"long goodbye", "goodbye frame of 1025 bytes",
			[][]byte{frameOf(header{kind: kindGoodbye}, make([]byte, transport.MaxWhy+1))}},
		{"number out of reach", "fragment 16 of 0 bytes without credit",
			[][]byte{frameOf(header{kind: kindData, number: maxFragments}, nil)}},
		{"second resumption", "before or after the resumption", [][]byte{frameOf(header{kind: kindResume}, nil)}},
		{"more room than there is", "room for 2^5",
			[][]byte{frameOf(header{kind: kindCredit, number: maxScale + 1}, nil)}},
		{"long answer", "answer of 1 bytes", [][]byte{frameOf(header{kind: kindGone}, []byte{1})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, doorbellB := loopback(t, nil)
			other, _ := loopback(t, nil)
			goesOn, sees := join(t, other, b, 2, 1)
			// The peer of this test is a process without a fabric.
			peer := *other.self
			peer.id = [16]byte{} // the smallest id, which dials
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			defer cancel()
			done := make(chan transport.Link, 1)
			go func() {
				l, err := b.Connect(ctx, peer.encode(), transport.Session{ID: spec.ID, Rank: 0, Peer: 1, Channels: 2})
				if err == nil {
					done <- l
				}
				close(done)
			}()
			nc := dialRaw(t, b)
			_, err := dialHandshake(nc, makeHello(helloFirst, &peer.id, &b.self.id, epoch{}, nonce{}), &peer, b.self)
			require.NoError(t, err)
			o := announcement(newPair(b, pairKey{b.self.id, true}, &peer), spec)
			body := make([]byte, openBytes)
			o.put(body)
			go io.Copy(io.Discard, nc)
			_, err = nc.Write(append(frameOf(header{kind: kindResume}, nil), frameOf(header{kind: kindOpen}, body)...))
			require.NoError(t, err)
			l, ok := <-done
			require.True(t, ok)
			frames := bytes.Join(tt.frames, nil)
			if len(tt.frames) > 1 {
				frames = renumber(frames)
			}
			go nc.Write(frames) // the connection may be cut meanwhile
			await(t, b, doorbellB, "the protocol error is noticed", func() bool { return l.Err() != nil })
			requireFault(t, l.Err(), fault.Internal, 1)
			require.ErrorContains(t, l.Err(), tt.says)
			commit(t, goesOn.Channel(0), "undisturbed")
			require.Equal(t, "undisturbed", receive(t, b, doorbellB, sees.Channel(0)))
		})
	}
}
