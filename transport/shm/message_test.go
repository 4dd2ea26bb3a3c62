package shm

import (
	"bytes"
	"testing"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
	"github.com/stretchr/testify/require"
)

var someAddress = address{Boot: [16]byte{1}, Network: 2, UID: 3, PID: 4, ID: id{5}, Socket: [16]byte{6}}

func TestAddress(t *testing.T) {
	b := someAddress.encode()
	require.LessOrEqual(t, len(b), transport.MaxAddress)
	a, ok := parseAddress(b)
	require.True(t, ok)
	require.Equal(t, someAddress, a)
	for _, tt := range []struct {
		name    string
		change  func(*address)
		reaches bool
	}{
		{"another process", func(a *address) { a.ID[0]++ }, true},
		{"itself", func(a *address) {}, false},
		{"another kernel", func(a *address) { a.ID[0]++; a.Boot[0]++ }, false},
		{"another namespace", func(a *address) { a.ID[0]++; a.Network++ }, false},
		{"another user", func(a *address) { a.ID[0]++; a.UID++ }, false},
	} {
		b := someAddress
		tt.change(&b)
		require.Equal(t, tt.reaches, someAddress.reaches(&b), tt.name)
		require.Equal(t, tt.reaches, b.reaches(&someAddress), tt.name)
	}
}

func FuzzAddress(f *testing.F) {
	good := someAddress.encode()
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(addressMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := parseAddress(b)
		if ok != bytes.Equal(b, a.encode()) {
			t.Fatalf("%x: accepted %v, but it encodes to %x", b, ok, a.encode())
		}
	})
}

func messages() []any {
	h := &hello{Layout: ownLayout, From: id{1}, To: id{2}, Challenge: [32]byte{3}, PoolBytes: ring.LeaseBytes}
	copy(h.Magic[:], helloMagic)
	return []any{h, &open{1, [16]byte{2}, 3, 4, 5, 512, 6, 2, 3, [transport.MaxNote]byte{8, 9, 10}, [32]byte{7}},
		newBye(7, []byte("why")), newVain(7, []byte("why")),
		&joined{8, 9}, &heard{10}, &control{11, []byte{}}, &control{12, make([]byte, transport.MaxControl)},
		newRefuse(8, int(fault.Invalid), "no")}
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, m := range messages() {
		b := encode(m)
		require.LessOrEqual(t, len(b), maxMessage)
		got, err := decode(b)
		require.NoError(t, err)
		require.Equal(t, m, got)
		shorter, err := decode(b[:len(b)-1])
		if c, ok := m.(*control); ok && len(c.Text) > 0 {
			require.Equal(t, &control{c.Serial, c.Text[1:]}, shorter)
		} else {
			require.Error(t, err)
		}
		longer, err := decode(append(b, 0))
		if c, ok := m.(*control); ok && len(c.Text) < transport.MaxControl {
			require.Equal(t, &control{c.Serial, append(c.Text, 0)}, longer)
			continue
		}
		require.Error(t, err)
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(encode(m))
	}
	for _, o := range unusualOpens() {
		f.Add(encode(&o))
	}
	f.Add([]byte{})
	f.Add([]byte{9})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		if !bytes.Equal(encode(m), b) {
			t.Fatalf("%x decodes to %+v, which encodes to something else", b, m)
		}
		if r, ok := m.(*refuse); ok {
			_ = r.text()
		}
		if o, ok := m.(*open); ok {
			_ = o.note()
		}
		if n := descriptors(m); n < 0 || n >= mostRights {
			t.Fatalf("%+v has %d descriptors", m, n)
		}
	})
}

// unusualOpens returns opens whose lengths are the least and the most, or too much.
func unusualOpens() []open {
	return []open{{}, {Share: transport.MaxShare, Length: transport.MaxNote},
		{Share: transport.MaxShare + 1}, {Length: transport.MaxNote + 1}, {Share: 1 << 31}, {Length: 1 << 31}}
}

func TestOpenLengths(t *testing.T) {
	for i, o := range unusualOpens() {
		m, err := decode(encode(&o))
		if i >= 2 {
			require.ErrorContains(t, err, "open that shares", i)
			continue
		}
		require.NoError(t, err, i)
		require.Len(t, m.(*open).note(), int(o.Length), i)
		require.Equal(t, 1+int(o.Share), descriptors(m), i)
	}
}

func TestHelloCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*hello)
		says   string
	}{
		{"fine", func(*hello) {}, ""},
		{"magic", func(h *hello) { h.Magic[0]++ }, "not a goccl process"},
		{"version", func(h *hello) { h.Layout.Version++ }, "another version"},
		{"slot size", func(h *hello) { h.Layout.Slot++ }, "another version"},
		{"receiver", func(h *hello) { h.To[15]++ }, "address"},
		{"sender", func(h *hello) { h.From[0]++ }, "address"},
		{"no pool", func(h *hello) { h.PoolBytes = 0 }, "pool"},
		{"huge pool", func(h *hello) { h.PoolBytes = 1 << 62 }, "pool"},
		{"odd pool", func(h *hello) { h.PoolBytes++ }, "pool"},
	} {
		h := *messages()[0].(*hello)
		tt.change(&h)
		if err := h.check(id{1}, id{2}); tt.says == "" {
			require.NoError(t, err, tt.name)
		} else {
			require.ErrorContains(t, err, tt.says, tt.name)
		}
	}
}

// TestSeal changes each field of an open and each other input of the HMAC: each change alters the
// HMAC.
func TestSeal(t *testing.T) {
	from, to := *messages()[0].(*hello), *messages()[0].(*hello)
	o, key := *messages()[1].(*open), [32]byte{9}
	want := o.seal(key, &from, &to)
	require.Equal(t, want, o.seal(key, &from, &to))
	for i, change := range []func(o *open, key *[32]byte, from, to *hello){
		func(o *open, _ *[32]byte, _, _ *hello) { o.Serial++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Session[3]++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Rank++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Window++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Peer++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Channels++ },
		func(_ *open, key *[32]byte, _, _ *hello) { key[31]++ },
		func(_ *open, _ *[32]byte, from, _ *hello) { from.Challenge[0]++ },
		func(_ *open, _ *[32]byte, _, to *hello) { to.Challenge[0]++ },
		func(_ *open, _ *[32]byte, from, _ *hello) { from.From[0]++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Slot++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Share-- },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Length++ },
		func(o *open, _ *[32]byte, _, _ *hello) { o.Note[transport.MaxNote-1]++ },
		func(_ *open, _ *[32]byte, _, to *hello) { to.From[0]++ },
	} {
		o, key, from, to := o, key, from, to
		change(&o, &key, &from, &to)
		require.NotEqual(t, want, o.seal(key, &from, &to), i)
	}
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct{ given, used int }{
		{0, DefaultPoolBytes}, {1, ring.LeaseBytes}, {ring.LeaseBytes + 1, 2 * ring.LeaseBytes}} {
		o := Options{PoolBytes: tt.given}
		o.EnsureDefaults()
		require.Equal(t, tt.used, o.PoolBytes)
		require.NoError(t, o.Validate())
	}
	for _, bad := range []int{-1, maxPoolBytes + 1} {
		o := Options{PoolBytes: bad}
		o.EnsureDefaults()
		require.ErrorIs(t, o.Validate(), fault.Invalid)
	}
}
