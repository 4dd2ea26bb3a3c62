package route

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

// noted is the offer of a rank on a device, with windows of both kinds unless it says why not.
func noted(device byte, deviceRate, hostRate float64, why ...string) Offer {
	n := Offer{Facts: Facts{Has: true, Device: [16]byte{device}, Word: 1e-6,
		Reads: [Kinds]Reads{{hostRate, 1e-6}, {deviceRate, 2e-6}}}}
	for k := range Kinds {
		if int(k) < len(why) {
			n.Why[k] = why[k]
		}
		n.Works[k] = n.Why[k] == ""
	}
	return n
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name   string
		offers []Offer
		route  string
		why    string
	}{
		{"one device", []Offer{noted(1, 3, 0, "-"), noted(1, 2, 0, "-")}, Windows, ""},
		{"one device, both", []Offer{noted(1, 3, 9), noted(1, 2, 9)}, Windows, ""},
		{"device faster", []Offer{noted(1, 30, 10), noted(2, 12, 11)}, Windows, ""},
		{"as fast", []Offer{noted(1, 10, 10), noted(2, 12, 11)}, Windows, ""},
		{"one slow pair", []Offer{noted(1, 300, 20), noted(2, 300, 20), noted(3, 5, 20)}, HostWindows,
			"peers read memory of the host faster than that of devices"},
		{"one cannot", []Offer{noted(1, 3, 2), noted(2, 3, 1, "", "no reach")}, HostWindows, "rank 1: no reach"},
		{"one has no host", []Offer{noted(1, 3, 2), noted(2, 3, 0, "no memory")}, Windows, ""},
		{"neither", []Offer{noted(1, 0, 0, "", "a"), noted(1, 0, 0, "b", "c")}, Staged, "rank 0: a; rank 1: b"},
		{"neither, one reason", []Offer{noted(1, 0, 0), noted(1, 0, 0, "b", "b")}, Staged, "rank 1: b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Choose(Auto, c.offers, topo.Spread(len(c.offers), 1))
			require.Equal(t, c.route, r.Name)
			require.Equal(t, c.why, r.Why)
		})
	}
}

func TestNext(t *testing.T) {
	one, two := []Offer{noted(1, 0, 0), noted(1, 0, 0)}, []Offer{noted(1, 0, 0), noted(2, 0, 0)}
	on := topo.Spread(2, 1)
	require.Equal(t, []Kind{OnDevice}, Next(one, on, [Kinds]bool{}))
	require.Equal(t, []Kind{InHost}, Next(one, on, [Kinds]bool{OnDevice: true}))
	require.Equal(t, []Kind{InHost, OnDevice}, Next(two, on, [Kinds]bool{}))
	require.Empty(t, Next(two, on, [Kinds]bool{true, true}))
	one[1] = noted(1, 0, 0, "", "no memory")
	require.Equal(t, []Kind{InHost}, Next(one, on, [Kinds]bool{}))
}

func TestOffer(t *testing.T) {
	for _, n := range []Offer{{}, noted(7, 1e9, 2.5, "", "why"),
		{Facts: Facts{Has: true, Slot: 1 << 40, DeviceSlot: 1 << 33, Interprets: 2, Device: [16]byte{15: 3}}}} {
		b := make([]byte, OfferBytes)
		n.Encode(b)
		require.Equal(t, n, Decode(b))
	}
	long := Offer{Why: [Kinds]string{string(make([]byte, 102)) + "é", "b"}}
	b := make([]byte, OfferBytes)
	long.Encode(b)
	require.Equal(t, [Kinds]string{string(make([]byte, 102)), "b"}, Decode(b).Why, "a character is not cut in two")
	require.Equal(t, "host-windows, 2 devices, peers read memory of devices at 1 GB/s or more after 8 µs, "+
		"peers read memory of the host at 2.5 GB/s or more after 0 µs, a word takes 0.7 µs; no better route: because",
		Route{Name: HostWindows, Why: "because", Devices: 2, Device: Reads{1e9, 8e-6},
			Host: Reads{Rate: 2.5e9}, Word: 7e-7}.String())
}

// Ranks with other slots, or that use them otherwise, do not join.
func TestSameSlots(t *testing.T) {
	same := Offer{Facts: Facts{Slot: 4096, Graphs: 1}}
	require.NoError(t, SameSlots([]Offer{same, same}, 0))
	for want, other := range map[string]Offer{
		"GOCCL_CUDA_GRAPHS is 2":     {Facts: Facts{Slot: 4096, Graphs: 2}},
		"slots of 8192 bytes":        {Facts: Facts{Slot: 8192, Graphs: 1}},
		"GOCCL_CUDA_INTERPRET is 1,": {Facts: Facts{Slot: 4096, Graphs: 1, Interprets: byte(InterpretAlways)}},
	} {
		require.ErrorContains(t, SameSlots([]Offer{same, other}, 0), want)
	}
}

// Short calls are one kernel where each rank has a device of its own, or where the user says so.
func TestInterprets(t *testing.T) {
	apart, beside := []Offer{noted(1, 0, 0), noted(2, 0, 0)}, []Offer{noted(1, 0, 0), noted(1, 0, 0)}
	many := make([]Offer, 9)
	for i := range many {
		many[i] = noted(byte(i), 0, 0)
	}
	for _, c := range []struct {
		offers              []Offer
		auto, never, always bool
	}{{apart, true, false, true}, {beside, false, false, true}, {many, false, false, false}} {
		for i, want := range map[Interpret]bool{InterpretAuto: c.auto, InterpretNever: c.never,
			InterpretAlways: c.always} {
			c.offers[0].Interprets = byte(i)
			require.Equal(t, want, Interprets(c.offers, topo.Spread(len(c.offers), 1)), "%v, %d ranks",
				i, len(c.offers))
		}
	}
}
