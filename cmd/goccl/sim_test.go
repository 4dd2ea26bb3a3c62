package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/topo/network"
)

func simRows(t *testing.T, args string) []simRow {
	t.Helper()
	out, err := run(t, append([]string{"sim", "--json"}, strings.Fields(args)...)...)
	require.NoError(t, err, args)
	var rows []simRow
	for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
		var row simRow
		require.NoError(t, decoder.Decode(&row))
		rows = append(rows, row)
	}
	return rows
}

func TestSimTensorParallel(t *testing.T) {
	rows := simRows(t, "--topo uniform:8,bw=600GB --algo ring --size 1.6GB")
	require.Len(t, rows, 1)
	require.InDelta(t, 4.67e-3, rows[0].Seconds, 0.005e-3)
	require.InDelta(t, 600, rows[0].BusBW, 1e-6)
	require.InEpsilon(t, rows[0].Formula, rows[0].Seconds, 1e-9)
	require.True(t, rows[0].Wins)
}

func TestSimWinners(t *testing.T) {
	winner := map[int64]string{}
	for _, row := range simRows(t, "--topo uniform:8,alpha=2us,bw=25GB --algo ring,recursive_doubling --size 1K,1G") {
		if row.Wins {
			winner[row.Bytes] = row.Algorithm
		}
	}
	require.Equal(t, map[int64]string{1 << 10: "recursive_doubling", 1 << 30: "ring"}, winner)
	out, err := run(t, "sim", "--topo", "torus:2x4,alpha=1us,bw=10GB", "--size", "1K..4K", "--shape", "2x4")
	require.NoError(t, err)
	require.Contains(t, out, "# all_reduce on 8 ranks (2x4), topology torus-2-4")
	require.Equal(t, 3, strings.Count(out, " ring "))
	require.Contains(t, out, "*")
	require.NotEmpty(t, simRows(t, "--coll all_gather --ranks 6 --size 6K --root 0"))
	require.NotEmpty(t, simRows(t, "--coll barrier --ranks 6 --size 0"))
}

func TestSimFiles(t *testing.T) {
	dir := t.TempDir()
	topology := filepath.Join(dir, "net.txt")
	var text bytes.Buffer
	require.NoError(t, network.Ring(4, network.Wire{Alpha: 1e-6, Bandwidth: 1e9}).WriteText(&text))
	require.NoError(t, os.WriteFile(topology, text.Bytes(), 0o600))
	trace := filepath.Join(dir, "trace.json")
	require.Len(t, simRows(t, "--topo "+topology+" --algo ring --size 4K --trace "+trace), 1)
	written, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.True(t, json.Valid(written))
	require.NoError(t, os.WriteFile(topology, []byte("goccl topology format 1\nwire a b\n"), 0o600))
	_, err = run(t, "sim", "--topo", topology)
	require.ErrorContains(t, err, "line 2, column 1")
}

func TestSimWrongUse(t *testing.T) {
	for args, words := range map[string]string{
		"sim extra":                             "takes no arguments",
		"sim --topo hypercube:8":                "unknown kind",
		"sim --coll dance":                      `unknown collective "dance"`,
		"sim --algo dance":                      `unknown algorithm "dance"`,
		"sim --size many":                       `size "many"`,
		"sim --size 4K..1K":                     "is no range",
		"sim --size 1K..x":                      `size "x"`,
		"sim --ranks -1":                        "--ranks -1",
		"sim --ranks 9 --topo ring:8":           "has 8 ranks only",
		"sim --shape 2y4":                       "--shape 2y4",
		"sim --shape 2x2x2x2":                   "up to 3 numbers",
		"sim --shape 3x3":                       "shape 3x3 has 9 ranks, want 8",
		"sim --element 0":                       "--element 0",
		"sim --root 9":                          "root 9 of 8 ranks",
		"sim --trace x":                         "--trace needs one algorithm",
		"sim --gamma -1 --algo ring --size 1K":  "gamma -1",
		"sim --algo ring --size 1K --trace /x/": "/x/",
		"sim --topo /":                          "/",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, words, args)
	}
}
