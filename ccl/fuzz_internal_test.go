package ccl

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzAddress has a rank put anything into the store as its address.
func FuzzAddress(f *testing.F) {
	node, err := NewNode(NodeOptions{Registered: -1})
	require.NoError(f, err)
	f.Cleanup(func() { node.Close() })
	e, err := node.Open(Config{Name: "fuzz", Rank: 0, Size: 2, Options: GroupOptions{Transport: "shm"}})
	require.NoError(f, err)
	var good address
	require.NoError(f, json.Unmarshal(e.Address(), &good))
	good.Number, good.Nonce = 1, "other"
	for _, change := range []func(a *address){
		func(*address) {},
		func(a *address) { a.Slot = -64 },
		func(a *address) { a.Cores = "0-9999999999" },
		func(a *address) { a.Fabrics = map[string][]byte{"shm": nil, "tcp": {1}, "": {2}} },
		func(a *address) { a.Place.Machine, a.Usable = "\xff", -1 },
	} {
		a := good
		change(&a)
		text, err := json.Marshal(&a)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte("[]"))
	f.Add([]byte(`{"rank":1e99}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		peers, group, err := e.agree([][]byte{e.Address(), text})
		if err != nil {
			named(t, err)
			return
		}
		// What Join does with addresses before it connects.
		if _, err := e.route(&peers[1], group); err != nil {
			named(t, err)
		}
		group.Threads(0)
		slotFor(group, true)
	})
}

// named requires that an error is one of the library's.
func named(t *testing.T, err error) {
	t.Helper()
	f := &Error{}
	require.True(t, errors.As(err, &f), "%v", err)
}

// FuzzOptions has a user write anything as options.
func FuzzOptions(f *testing.F) {
	for _, row := range optionTable {
		f.Add(row.Name + "=" + row.Default)
	}
	f.Add("GOCCL_TRANSPORT=shm\nGOCCL_TIMEOUT=1.5s\n\nGOCCL_BUFFSIZE=512K")
	f.Add("GOCCL_PORT=29600-29700\nGOCCL_ALGO=all_reduce=ring,broadcast=binomial")
	f.Add("GOCCL_SPIN_US=-1")
	f.Add("GOCCL_REGISTERED=99999999999999999999T")
	f.Add("GOCCL_WARN_AFTER=0")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseOptions(text)
		if err != nil {
			named(t, err)
			return
		}
		o.serviceLinks = nil
		again, err := ParseOptions(o.String())
		require.NoError(t, err, "%s", o)
		require.Equal(t, o, again)
		o.EnsureDefaults()
		require.NoError(t, o.Validate())
	})
}
