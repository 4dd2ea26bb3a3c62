package tcp

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

// knocks opens fabrics of strangers, with their options.
func knocks(t *testing.T, all ...Options) (fabrics []*Fabric) {
	t.Helper()
	for _, opts := range all {
		opts.Doorbell, opts.Interfaces = park.NewDoorbell(), "lo"
		f, err := New(opts)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		fabrics = append(fabrics, f)
	}
	return fabrics
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, []byte(secret), 0o600))
	return name
}

// echo answers what a visitor says, until it has said it all.
func echo(nc net.Conn) {
	defer nc.Close()
	io.Copy(nc, nc)
}

func TestKnock(t *testing.T) {
	same := secretFile(t, "a secret of all processes")
	for name, opts := range map[string]Options{"plain": {}, "tls": {TLS: true}, "secret": {SecretFile: same},
		"both": {TLS: true, SecretFile: same}} {
		t.Run(name, func(t *testing.T) {
			f := knocks(t, opts, opts)
			f[0].Admit(echo)
			nc, err := f[1].Knock(t.Context(), f[0].Address())
			require.NoError(t, err)
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(10 * time.Second))
			for _, text := range []string{"hello", "again"} {
				_, err = io.WriteString(nc, text)
				require.NoError(t, err)
				got := make([]byte, len(text))
				_, err = io.ReadFull(nc, got)
				require.NoError(t, err)
				require.Equal(t, text, string(got))
			}
			require.NoError(t, nc.Close())
			require.ErrorIs(t, nc.Close(), net.ErrClosed)
		})
	}
}

// TestKnockInVain: whoever does not know the address, or has another secret, is turned away, and so
// is everybody where nobody is admitted.
func TestKnockInVain(t *testing.T) {
	one, other := secretFile(t, "a secret of all processes"), secretFile(t, "another secret of somebody")
	f := knocks(t, Options{SecretFile: one}, Options{SecretFile: one}, Options{SecretFile: other}, Options{TLS: true})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	knock := func(at *Fabric, blob []byte) error {
		nc, err := at.Knock(ctx, blob)
		if err == nil {
			nc.Close()
		}
		return err
	}
	require.ErrorIs(t, knock(f[1], f[0].Address()), fault.PeerLost, "nobody is admitted")
	f[0].Admit(echo)
	require.NoError(t, knock(f[1], f[0].Address()))
	require.ErrorIs(t, knock(f[2], f[0].Address()), errStranger, "another secret")
	require.ErrorIs(t, knock(f[3], f[0].Address()), fault.Mismatch, "without TLS")
	forged := *f[0].self
	forged.secret[0]++
	require.ErrorIs(t, knock(f[1], forged.encode()), errStranger, "it guesses the secret of the process")
	require.ErrorIs(t, knock(f[1], []byte("no address")), fault.Invalid)
	f[0].Admit(nil)
	require.ErrorIs(t, knock(f[1], f[0].Address()), fault.PeerLost)
}

// TestKnockEnds: either side sees the end of the other, and Close of a fabric that of its visits.
func TestKnockEnds(t *testing.T) {
	f := knocks(t, Options{}, Options{})
	ended := make(chan error, 1)
	f[0].Admit(func(nc net.Conn) {
		_, err := nc.Read(make([]byte, 1))
		nc.SetDeadline(time.Time{}) // for good is for good, whatever deadlines are set
		nc.Read(make([]byte, 1))
		ended <- err
		nc.Close()
	})
	nc, err := f[1].Knock(t.Context(), f[0].Address())
	require.NoError(t, err)
	require.NoError(t, nc.Close())
	require.ErrorIs(t, <-ended, io.EOF)
	nc, err = f[1].Knock(t.Context(), f[0].Address())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, f[0].Close())
	require.Error(t, <-ended)
	_, err = nc.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = f[1].Knock(t.Context(), f[0].Address())
	require.ErrorIs(t, err, fault.PeerLost)
}
