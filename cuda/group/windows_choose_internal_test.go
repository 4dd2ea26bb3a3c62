package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo"
)

// a note of a rank on a device, with windows of both kinds unless it says why not.
func noted(device byte, deviceRate, hostRate float64, why ...string) note {
	n := note{Has: true, Device: [16]byte{device}, Reads: [kinds]Reads{{hostRate, 1e-6}, {deviceRate, 2e-6}},
		Word: 1e-6}
	for k := range kinds {
		if int(k) < len(why) {
			n.Why[k] = why[k]
		}
		n.Works[k] = n.Why[k] == ""
	}
	return n
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name  string
		notes []note
		route string
		why   string
	}{
		{"one device", []note{noted(1, 3, 0, "-"), noted(1, 2, 0, "-")}, RouteWindows, ""},
		{"one device, both", []note{noted(1, 3, 9), noted(1, 2, 9)}, RouteWindows, ""},
		{"device faster", []note{noted(1, 30, 10), noted(2, 12, 11)}, RouteWindows, ""},
		{"as fast", []note{noted(1, 10, 10), noted(2, 12, 11)}, RouteWindows, ""},
		{"one slow pair", []note{noted(1, 300, 20), noted(2, 300, 20), noted(3, 5, 20)}, RouteHostWindows,
			"peers read memory of the host faster than that of devices"},
		{"one cannot", []note{noted(1, 3, 2), noted(2, 3, 1, "", "no reach")}, RouteHostWindows, "rank 1: no reach"},
		{"one has no host", []note{noted(1, 3, 2), noted(2, 3, 0, "no memory")}, RouteWindows, ""},
		{"neither", []note{noted(1, 0, 0, "", "a"), noted(1, 0, 0, "b", "c")}, RouteStaged, "rank 0: a; rank 1: b"},
		{"neither, one reason", []note{noted(1, 0, 0), noted(1, 0, 0, "b", "b")}, RouteStaged, "rank 1: b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := choose(c.notes, topo.Spread(len(c.notes), 1))
			require.Equal(t, c.route, r.Name)
			require.Equal(t, c.why, r.Why)
		})
	}
}

func TestNext(t *testing.T) {
	one, two := []note{noted(1, 0, 0), noted(1, 0, 0)}, []note{noted(1, 0, 0), noted(2, 0, 0)}
	on := topo.Spread(2, 1)
	require.Equal(t, []kind{onDevice}, next(one, on, [kinds]bool{}))
	require.Equal(t, []kind{inHost}, next(one, on, [kinds]bool{onDevice: true}))
	require.Equal(t, []kind{inHost, onDevice}, next(two, on, [kinds]bool{}))
	require.Empty(t, next(two, on, [kinds]bool{true, true}))
	one[1] = noted(1, 0, 0, "", "no memory")
	require.Equal(t, []kind{inHost}, next(one, on, [kinds]bool{}))
}

func TestNote(t *testing.T) {
	for _, n := range []note{{}, noted(7, 1e9, 2.5, "", "why"),
		{Has: true, Slot: 1 << 40, DeviceSlot: 1 << 33, Interprets: 2, Device: [16]byte{15: 3}}} {
		b := make([]byte, noteBytes)
		n.encode(b)
		require.Equal(t, n, decodeNote(b))
	}
	long := note{Why: [kinds]string{string(make([]byte, 102)) + "é", "b"}}
	b := make([]byte, noteBytes)
	long.encode(b)
	require.Equal(t, [kinds]string{string(make([]byte, 102)), "b"}, decodeNote(b).Why, "a character is not cut in two")
	require.Equal(t, "host-windows, 2 devices, peers read memory of devices at 1 GB/s or more after 8 µs, "+
		"peers read memory of the host at 2.5 GB/s or more after 0 µs, a word takes 0.7 µs; no better route: because",
		Route{Name: RouteHostWindows, Why: "because", Devices: 2, Device: Reads{1e9, 8e-6},
			Host: Reads{Rate: 2.5e9}, Word: 7e-7}.String())
}

// Ranks with other slots, or that use them otherwise, do not join.
func TestSameSlots(t *testing.T) {
	same := note{Slot: 4096, Graphs: 1}
	require.NoError(t, sameSlots([]note{same, same}, 0))
	for want, other := range map[string]note{
		"GOCCL_CUDA_GRAPHS is 2":     {Slot: 4096, Graphs: 2},
		"slots of 8192 bytes":        {Slot: 8192, Graphs: 1},
		"GOCCL_CUDA_INTERPRET is 1,": {Slot: 4096, Graphs: 1, Interprets: byte(InterpretAlways)},
	} {
		require.ErrorContains(t, sameSlots([]note{same, other}, 0), want)
	}
}

// Short calls are one kernel where each rank has a device of its own, or where the user says so.
func TestInterprets(t *testing.T) {
	apart, beside := []note{noted(1, 0, 0), noted(2, 0, 0)}, []note{noted(1, 0, 0), noted(1, 0, 0)}
	many := make([]note, 9)
	for i := range many {
		many[i] = noted(byte(i), 0, 0)
	}
	for _, c := range []struct {
		notes               []note
		auto, never, always bool
	}{{apart, true, false, true}, {beside, false, false, true}, {many, false, false, false}} {
		for i, want := range map[Interpret]bool{InterpretAuto: c.auto, InterpretNever: c.never,
			InterpretAlways: c.always} {
			c.notes[0].Interprets = byte(i)
			require.Equal(t, want, interprets(c.notes, topo.Spread(len(c.notes), 1)), "%v, %d ranks", i, len(c.notes))
		}
	}
}
