package tcp

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

func TestCongestions(t *testing.T) {
	unpaced := []string{"cubic", "reno"}
	for _, c := range []struct {
		choice, has string
		trip        time.Duration
		want        []string
	}{
		{"", "bbr", 50 * time.Microsecond, unpaced},
		{"", "bbr3", 999 * time.Microsecond, unpaced},
		{"", "bbr", time.Millisecond, nil},
		{"", "bbr", 80 * time.Millisecond, nil},
		{"", "bbr", 0, nil}, // not known
		{"", "cubic", 50 * time.Microsecond, nil},
		{"", "reno", 50 * time.Microsecond, nil},
		{"", "dctcp", 50 * time.Microsecond, nil},
		{"", "", 50 * time.Microsecond, nil},
		{"system", "bbr", 50 * time.Microsecond, nil},
		{"bbr", "bbr", 50 * time.Microsecond, nil},
		{"bbr", "cubic", 50 * time.Microsecond, []string{"bbr"}},
		{"reno", "bbr", 80 * time.Millisecond, []string{"reno"}},
		{"cubic", "bbr", 0, []string{"cubic"}},
	} {
		require.Equal(t, c.want, congestions(c.choice, c.has, c.trip), "%+v", c)
	}
}

// A socket has what was chosen, or else the first of some that the system allows. Every Linux has
// reno, and lets every user have it.
func TestGiveCongestion(t *testing.T) {
	a, b, _, _ := ordered(t, func(o *Options) { o.Congestion = SystemCongestion })
	la, lb := join(t, a, b, 1, 1)
	fd := la.pair.live.Load().main.fd
	given, err := giveCongestion(fd, []string{"no-such", "reno"})
	require.NoError(t, err)
	require.Equal(t, []string{"reno", "reno"}, []string{given, congestionOf(fd)})
	given, err = giveCongestion(fd, []string{"no-such"})
	require.Error(t, err)
	require.Equal(t, []string{"", "reno"}, []string{given, congestionOf(fd)})
	given, err = giveCongestion(fd, nil)
	require.NoError(t, err)
	require.Empty(t, given)
	require.Equal(t, system(t), congestionOf(lb.pair.live.Load().main.fd))
}

func system(t *testing.T) string {
	t.Helper()
	name, _, err := Congestion(SystemCongestion)
	require.NoError(t, err)
	require.NotEmpty(t, name)
	return name
}

// TestCongestion reads back what all sockets of both sides have that carry frames, after a
// connection was made, and after it has healed.
func TestCongestion(t *testing.T) {
	for _, choice := range []string{"", SystemCongestion, "reno"} {
		t.Run("choice="+choice, func(t *testing.T) {
			_, want, err := Congestion(choice)
			require.NoError(t, err)
			require.True(t, choice != "reno" || want == "reno", want)
			require.False(t, choice == "" && paces(want), want)
			a, b, _, _ := ordered(t, func(o *Options) { o.Streams, o.Congestion = 3, choice })
			la, lb := join(t, a, b, 1, 1)
			var before *conn
			for range 2 {
				await(t, a, a.doorbell, "all sockets", func() bool {
					b.Poll()
					for _, s := range []*session{la, lb} {
						if c := s.pair.live.Load(); c == nil || c == before || len(c.all()) != 3 {
							return false
						}
					}
					return true
				})
				for _, s := range []*session{la, lb} {
					for _, k := range s.pair.live.Load().all() {
						require.Equal(t, want, congestionOf(k.fd))
						require.False(t, k.paced.Load())
					}
				}
				before = la.pair.live.Load()
				shutdown(before.main.fd, true)
			}
		})
	}
}

// TestPathIsShorter has a path seem long at first, as a busy one does: its socket is asked again,
// until the path proves short.
func TestPathIsShorter(t *testing.T) {
	var told warnings
	var short atomic.Bool
	a, b, _, _ := ordered(t, func(o *Options) { o.PeerTimeout = LeastPeerTimeout })
	a.opts.Info = told.warn
	a.trips = func(int, *pathInfo) (shortest, smoothed time.Duration) {
		if short.Load() {
			return ShortPath - 1, time.Second
		}
		return ShortPath, time.Second
	}
	la, _ := join(t, a, b, 1, 1)
	k := la.pair.live.Load().main
	if err := setCongestion(k.fd, "bbr"); err != nil {
		t.Logf("this system has no BBR: %v", err)
		require.False(t, a.unpace(k.fd))
		return
	}
	k.paced.Store(true)
	k.unpace()
	require.True(t, k.paced.Load())
	require.Equal(t, "bbr", congestionOf(k.fd))
	short.Store(true)
	await(t, a, a.doorbell, "another congestion control", func() bool { b.Poll(); return !k.paced.Load() })
	require.Contains(t, []string{"cubic", "reno"}, congestionOf(k.fd))
	_, text := told.get()
	require.Equal(t, "tcp: connections whose round trip is below 1ms have "+congestionOf(k.fd)+
		", and not the system's bbr; see GOCCL_SOCKET_CONGESTION", text)
}

func TestCongestionRefused(t *testing.T) {
	_, err := New(Options{Doorbell: park.NewDoorbell(), Interfaces: "lo", Congestion: "no-such"})
	require.ErrorIs(t, err, fault.Invalid)
	require.ErrorContains(t, err, "GOCCL_SOCKET_CONGESTION=no-such: the system does not have it")
	require.ErrorContains(t, err, "reno")
}
