package rdma

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

func TestMessages(t *testing.T) {
	for _, m := range []message{
		{Kind: sayHello, Epoch: 7, End: &endpoint{LID: 3, GID: [16]byte{1, 15: 2}, MTU: 4096, Pair: 17,
			Sequence: 1 << 23, Pool: remotePool{At: 1 << 60, Key: 1 << 31, Slots: mostLong}}},
		{Kind: sayPorts, Ports: []bool{true, false}}, {Kind: sayPorts, Why: "because"},
		{Kind: sayVacate, Path: 3, Epoch: 2, To: 4, Channels: []int{0}}, {Kind: sayVacated, Path: 3, Epoch: 2, To: 4},
		{Kind: sayReady, Epoch: 1}, {Kind: sayBroken, Epoch: 1, Why: "because"}, {Kind: sayBye},
		{Kind: sayOpen, Link: 1, Session: &sessionKey{ID: [16]byte{3}, Rank: 5, Peer: 9}},
		{Kind: sayOffer, To: 4, At: 1 << 47, Key: 5, Bytes: shortBytes, Channels: []int{0, 1, 2}, Long: []int{7}},
		{Kind: sayClose, Link: 6}, {Kind: sayClosed, Link: 6},
	} {
		text := m.text()
		require.LessOrEqual(t, len(text), transport.MaxControl)
		got, err := parse(text)
		require.NoError(t, err)
		require.Equal(t, &m, got)
	}
	for _, text := range []string{
		"", "{", "null", "[]", `{"Kind":"other"}`, `{"Kind":"hello","Epoch":1}`, `{"Kind":"hello","End":{}}`,
		`{"Kind":"hello","Epoch":1,"End":{"Pool":{"Slots":-1}}}`, `{"Kind":"hello","Epoch":1,"End":{"Pool":{"Slots":4097}}}`,
		`{"Kind":"open","Link":1}`, `{"Kind":"open","Session":{}}`, `{"Kind":"open","Link":131072,"Session":{}}`,
		`{"Kind":"offer","Bytes":64}`, `{"Kind":"offer","Bytes":8193}`, `{"Kind":"offer","Bytes":8192,"Long":[1]}`,
		`{"Kind":"ready","Path":4}`, `{"Kind":"offer","Path":-1,"Bytes":8192}`, `{"Kind":"ports","Ports":[true,true,true,true,true]}`,
		`{"Kind":"ready","Unknown":1}`, `{"Kind":"ready","Epoch":-1}`,
	} {
		_, err := parse([]byte(text))
		require.True(t, errors.Is(err, fault.Internal), "%s: %v", text, err)
	}
}

// FuzzMessage reads what a peer may send: it is refused, or can be written again.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"Kind":"hello","Epoch":1,"End":{"Pair":7}}`))
	f.Add([]byte(`{"Kind":"offer","Bytes":8192,"Channels":[0,1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parse(text)
		if err != nil {
			return
		}
		again, err := parse(m.text())
		require.NoError(t, err)
		require.Equal(t, m.text(), again.text())
	})
}

func TestImmediates(t *testing.T) {
	for k := kindShort; k <= kindProbe; k++ {
		for _, channel := range []uint32{0, 1, mostChannel - 1} {
			for _, value := range []uint32{0, 1, values - 1} {
				gotKind, gotChannel, gotValue := parts(immediate(k, channel, value))
				require.Equal(t, []uint32{uint32(k), channel, value}, []uint32{uint32(gotKind), gotChannel, gotValue})
			}
		}
	}
}

func TestHeads(t *testing.T) {
	b := make([]byte, headBytes)
	want := head{number: 1 << 63, wants: true, meta: transport.Meta{1, 2, 1 << 63}}
	want.put(b)
	var got head
	got.get(b)
	require.Equal(t, want, got)

	for _, c := range []struct {
		t     tail
		bytes int
		ok    bool
	}{
		{tail{number: 5, whole: 100}, 100, true},
		{tail{number: 5}, 0, true},
		{tail{whole: 100, at: 60}, 40, true},
		{tail{whole: 100, at: 60}, 41, false},
		{tail{whole: 100, at: 1 << 31}, 40, false},
		{tail{whole: longBytes, at: 0}, 100, true},
		{tail{whole: longBytes + 1, at: 0}, 100, false}, // longer ones come in one part
		{tail{whole: longBytes + 1, at: 0}, longBytes + 1, true},
		{tail{whole: 1 << 31, at: 0}, 100, false},
	} {
		b := make([]byte, headBytes+c.bytes)
		c.t.put(b)
		var got tail
		require.Equal(t, c.ok, got.read(b), "%+v and %d bytes", c.t, c.bytes)
		require.Equal(t, c.t, got)
	}
}
