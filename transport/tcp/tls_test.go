package tcp

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/transporttest"
	"github.com/stretchr/testify/require"
)

func withTLS(o *Options) { o.TLS = true }

func TestConformanceTLS(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.Pair {
		a, doorbellA := loopback(t, withTLS)
		b, doorbellB := loopback(t, withTLS)
		return transporttest.Pair{A: a, B: b, DoorbellA: doorbellA, DoorbellB: doorbellB}
	}, transporttest.Options{Allocates: true, OnUse: true})
}

// TestTLSHealsAndHides resets connections with TLS, and looks for what was sent on the wire.
func TestTLSHealsAndHides(t *testing.T) {
	for _, hides := range []bool{false, true} {
		a, b, doorbellA, doorbellB := ordered(t, func(o *Options) { o.TLS = hides })
		path, address := newRelay(t, b)
		seen := path.watch("the plain text")
		la, lb := joinAt(t, a, b, address, 1, 1)
		for range 20 {
			await(t, a, doorbellA, "credit", func() bool { return la.Channel(0).Reserve(14) != nil })
			commit(t, la.Channel(0), "the plain text")
			require.Equal(t, "the plain text", receive(t, b, doorbellB, lb.Channel(0)))
			path.reset()
		}
		require.Equal(t, !hides, seen(), "TLS: %v", hides)
	}
}

// TestTrust has processes that differ in TLS, in the secret, or in the certificate.
func TestTrust(t *testing.T) {
	secret := func(text string) func(*Options) {
		file := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(file, []byte(text+", and sixteen bytes"), 0o600))
		return func(o *Options) { o.SecretFile = file }
	}
	connect := func(from *Fabric, address []byte) error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := from.Connect(ctx, address, transport.Session{Rank: 0, Peer: 1, Channels: 1})
		return err
	}
	t.Run("TLS of one", func(t *testing.T) {
		a, _ := loopback(t, withTLS)
		b, _ := loopback(t, nil)
		requireFault(t, connect(a, b.Address()), fault.Mismatch, 1)
		require.ErrorContains(t, connect(b, a.Address()), "opened TCP with TLS, this process without")
	})
	for name, change := range map[string][2]func(*Options){
		"another secret": {secret("one"), secret("another")},
		"no secret":      {secret("one"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := loopback(t, change[0])
			b, _ := loopback(t, change[1])
			done := make(chan error, 1)
			go func() { done <- connect(b, a.Address()) }()
			err := connect(a, b.Address())
			requireFault(t, err, fault.Timeout, 1)
			if !keyOf(a.self, b.self, &transport.Session{Rank: 0, Peer: 1}).accept {
				require.ErrorContains(t, err, "it has another secret")
			}
			requireFault(t, <-done, fault.Timeout, 1)
		})
	}
	t.Run("the same secret", func(t *testing.T) {
		a, b, doorbellA, _ := ordered(t, secret("the same"))
		la, lb := join(t, a, b, 1, 1)
		commit(t, lb.Channel(0), "trusted")
		require.Equal(t, "trusted", receive(t, a, doorbellA, la.Channel(0)))
	})
	t.Run("another certificate", func(t *testing.T) {
		// A man in the middle knows the addresses, and so the secrets, but no private key.
		a, b, _, _ := ordered(t, withTLS)
		liar := *b.self
		liar.certificate[0] ^= 1
		liar.secret = [32]byte{}
		address := liar.encode()
		err := connect(a, address)
		requireFault(t, err, fault.Timeout, 1)
		require.ErrorContains(t, err, "does not prove that it is the peer")
	})
}

// BenchmarkTLS moves 16 MiB one way; compare with BenchmarkPlain.
func BenchmarkTLS(b *testing.B)   { benchmarkOneWay(b, withTLS) }
func BenchmarkPlain(b *testing.B) { benchmarkOneWay(b, nil) }

func benchmarkOneWay(b *testing.B, change func(*Options)) {
	const total = 16 << 20
	from, _ := loopback(b, change)
	to, _ := loopback(b, change)
	la, lb := join(b, from, to, 1, 1)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			to.Poll()
			for {
				if _, _, ok := lb.Channel(0).Peek(); !ok {
					break
				}
				lb.Channel(0).Release()
			}
		}
	}()
	b.SetBytes(total)
	for b.Loop() {
		for sent := 0; sent < total; {
			space := la.Channel(0).Reserve(64 << 10)
			if space == nil {
				from.Poll()
				continue
			}
			la.Channel(0).Commit(len(space), &transport.Meta{})
			sent += len(space)
		}
	}
	close(stop)
	<-ended
}
