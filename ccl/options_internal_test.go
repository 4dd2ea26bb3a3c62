package ccl

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/signals"
)

// samples has, for each option, texts that it takes with what they are printed as, and texts that
// it refuses with what is wanted then. What it prints it takes, as the first test shows.
var samples = map[string]struct {
	taken   map[string]string
	refused map[string]string
}{
	"ALGO": {map[string]string{"all_reduce=ring,broadcast=binomial": "all_reduce=ring,broadcast=binomial"},
		map[string]string{"all_reduce=quick": "quick", "ring": "ring"}},
	"BLOCKING_WAIT": {flags, noFlags},
	"BUFFSIZE": {map[string]string{"128K": "128K", "1.5M": "1536K", "32mib": "32M", "200000B": "200000"},
		map[string]string{"64K": "want a size from 128K to 32M", "0": "want a size from 128K", "2MM": "want bytes"}},
	"CHECKSUM": {flags, noFlags},
	"CUDA_BUFFSIZE": {map[string]string{"256K": "256K", "1G": "1G"},
		map[string]string{"2G": "want a size from 256K to 1G", "-4M": "want bytes"}},
	"CUDA_GRAPHS": {map[string]string{"0": "0", "2": "2", "4096": "4096"},
		map[string]string{"4097": "want a number from 0 to 4096", "-1": "want a number from 0 to 4096",
			"many": "want a number from 0 to 4096"}},
	"CUDA_INTERPRET": {map[string]string{"auto": "auto", "0": "0", "1": "1"},
		map[string]string{"2": "want auto, 0 or 1", "AUTO": "want auto, 0 or 1"}},
	"CUDA_REGISTERED": {sizesOrNone, noSizes},
	"CUDA_ROUTE": {map[string]string{"host-windows": "host-windows"},
		map[string]string{"direct": "want auto, staged, windows or host-windows"}},
	"DEBUG": {map[string]string{"info": "INFO", "TRACE": "TRACE"},
		map[string]string{"verbose": "want WARN, INFO or TRACE"}},
	"DEBUG_FILE": {map[string]string{"/var/log/goccl.%h.%p": "/var/log/goccl.%h.%p", "100%%": "100%%"},
		map[string]string{"a%x": "%x is unknown: %h is the host", "%": "is unknown"}},
	"DEBUG_FORMAT": {map[string]string{"json": "json", "text": "text"},
		map[string]string{"xml": "want text or json"}},
	"DETERMINISM": {map[string]string{"1": "1", "2": "2", "4": "4"},
		map[string]string{"-1": "want a number from 1 to 4", "5": "want a number from 1", "high": "want a number"}},
	"FAST_BF16": {flags, noFlags},
	"FUTURES": {map[string]string{"wait": "wait", "callbacks": "callbacks"},
		map[string]string{"Wait": "want callbacks or wait"}},
	"IB_GID_INDEX": {map[string]string{"-1": "", "0": "0", "255": "255"},
		map[string]string{"-2": "want -1, or an index from 0 to 255", "256": "want -1, or", "x": "want -1, or"}},
	"IB_HCA": {map[string]string{"=mlx5_0:1,mlx5_1": "=mlx5_0:1,mlx5_1"},
		map[string]string{"mlx5_0:x": "is not a number"}},
	"IB_RETRY_CNT": {map[string]string{"1": "1", "6": "6"},
		map[string]string{"0": "want a number from 1 to 6", "7": "want a number from 1 to 6"}},
	"IB_SL": {map[string]string{"0": "", "15": "15"}, map[string]string{"16": "want a number from 0 to 15"}},
	"IB_TC": {map[string]string{"0": "", "255": "255"}, map[string]string{"256": "want a number from 0 to 255"}},
	"IB_TIMEOUT": {map[string]string{"14": "14"},
		map[string]string{"0": "want a number from 14 to 22", "23": "want a number from 14 to 22"}},
	"PEER_TIMEOUT": {map[string]string{"2": "2s", "1m": "1m0s"},
		map[string]string{"1s": "want a time of at least 2s", "soon": "want a time of at least 2s", "-3": "least 2s"}},
	"PLAN": {map[string]string{"a.plan, b.plan": "a.plan, b.plan"}, nil},
	"PORT": {map[string]string{"29600": "29600", "29600-29700": "29600-29700"},
		map[string]string{"0": "want a port or a range of ports; write 29600 or 29600-29700",
			"29700-29600": "want a port", "tcp:29600": "want a port"}},
	"RECORDER": {map[string]string{"0": "", "4096": "4096"},
		map[string]string{"1048577": "want a number from 0 to 1048576"}},
	"RECORD_FILE": {map[string]string{"/tmp/of_": "/tmp/of_"}, nil},
	"RECORD_SIGNAL": {map[string]string{"sigusr1": "USR1", "None": "none"},
		map[string]string{"HUP": "want USR2, USR1 or none"}},
	"REGISTERED":  {sizesOrNone, noSizes},
	"SECRET_FILE": {map[string]string{"/tmp/no such file": "/tmp/no such file"}, nil},
	"SITE": {map[string]string{"eu-west-1": "eu-west-1", "hall:2/row.3_b": "hall:2/row.3_b"},
		map[string]string{"hall@2": "want a name of at most 63 letters", strings.Repeat("a", 64): "want a name"}},
	"SOCKET_CONGESTION": {map[string]string{"system": "system", "cubic": "cubic", "tcp_x-2": "tcp_x-2"},
		map[string]string{"a/b": "want system, or the name of a congestion control, such as cubic",
			"sixteen_letters_": "want system, or the name"}},
	"SOCKET_FAMILY": {map[string]string{"AF_INET": "ipv4", "IPv6": "ipv6"},
		map[string]string{"ipx": "want ipv4 or ipv6"}},
	"SOCKET_IFNAME": {map[string]string{"^docker,lo": "^docker,lo"}, nil},
	"SOCKET_STREAMS": {map[string]string{"0": "", "16": "16"},
		map[string]string{"17": "want a number from 0 to 16", "-1": "want a number from 0 to 16"}},
	"SPIN_US": {map[string]string{"0": "0", "50": "50", "100000": "100000"},
		map[string]string{"2us": "want whole microseconds, from 0 to 100000", "1000000": "from 0 to 100000",
			"-1": "whole microseconds", "1.5": "whole microseconds"}},
	"TIMEOUT": {map[string]string{"90": "1m30s", "1.5s": "1.5s", "5m": "5m0s"},
		map[string]string{"0": "want a time longer than zero, such as 90, 1.5s or 5m", "-1s": "longer than zero",
			"soon": "want a time"}},
	"TLS": {flags, noFlags},
	"TOP": {map[string]string{"0": "0", "1": ""}, noFlags},
	"TRANSPORT": {map[string]string{"SHM": "shm", "rdma": "rdma"},
		map[string]string{"pigeon": "want auto, shm, rdma or tcp"}},
	"COSTS": {map[string]string{"costs.json": "costs.json"}, nil},
	"TOPO":  {map[string]string{"node1.topo": "node1.topo", "uniform:8,bw=1GB": "uniform:8,bw=1GB"}, nil},
	"TUNE": {map[string]string{"a.table": "a.table", "online": "online", "online,a.table": "online,a.table"},
		map[string]string{"online,": "want online, FILE or online,FILE"}},
	"TUNE_OUTPUT": {map[string]string{"a.table": "a.table"}, nil},
	"VERIFY":      {map[string]string{"Always": "always"}, map[string]string{"never": "want tested or always"}},
	"WARN_AFTER": {map[string]string{"0": "0", "0s": "0", "2": "2s"},
		map[string]string{"-2": "want 0, or a time longer than zero", "late": "want 0, or a time"}},
}

var (
	flags   = map[string]string{"0": "", "1": "1"}
	noFlags = map[string]string{"yes": "want 0 or 1", "2": "want 0 or 1", "true": "want 0 or 1"}

	sizesOrNone = map[string]string{"0": "0", "2M": "2M", "4GiB": "4G", "1T": "1T"}
	noSizes     = map[string]string{"1": "want 0, or a size from 2M to 1T", "2T": "want 0, or a size",
		"-1": "want 0, or a size", "lots": "want 0, or a size"}
)

func TestOptionTexts(t *testing.T) {
	require.Len(t, samples, len(optionTable))
	require.True(t, slices.IsSortedFunc(optionTable, func(a, b *option) int { return strings.Compare(a.Name, b.Name) }))
	for _, row := range optionTable {
		sample := samples[strings.TrimPrefix(row.Name, "GOCCL_")]
		require.NotEmpty(t, sample.taken, row.Name)
		printed := slices.Collect(func(yield func(string) bool) {
			for text, want := range sample.taken {
				o, err := ParseOptions(row.Name + " = " + text)
				require.NoError(t, err)
				line := ""
				if want != "" {
					line = row.Name + "=" + want + "\n"
				}
				require.Equal(t, line, o.String())
				yield(want)
			}
		})
		for _, text := range append(printed, row.Default, "") {
			o, err := ParseOptions(row.Name + "=" + text)
			require.NoError(t, err, row.Name)
			again, err := ParseOptions(o.String())
			require.NoError(t, err, row.Name)
			require.Equal(t, o, again)
			o.EnsureDefaults()
			require.NoError(t, o.Validate())
		}
		for text, why := range sample.refused {
			_, err := ParseOptions(row.Name + "=" + text)
			require.ErrorIs(t, err, fault.Invalid, "%s=%s", row.Name, text)
			require.ErrorContains(t, err, row.Name+"="+text, row.Name)
			require.ErrorContains(t, err, why)
			_, err = ParseOptions(row.Name + "=" + text + "\n" + row.Name + "=" + row.Default)
			require.NoError(t, err, "a later line wins")
		}
	}
}

// Values that no text has are refused as well.
func TestValidate(t *testing.T) {
	for want, o := range map[string]Options{
		"GOCCL_BUFFSIZE=1: want a size":         {GroupOptions: GroupOptions{BuffSize: 1}},
		"GOCCL_BUFFSIZE=-1: want a size":        {GroupOptions: GroupOptions{BuffSize: -1}},
		"GOCCL_DEBUG=info: want WARN":           {GroupOptions: GroupOptions{Debug: "info"}},
		"GOCCL_IB_GID_INDEX=-1: want -1, or":    {NodeOptions: NodeOptions{IBGIDIndex: new(-1)}},
		"GOCCL_SPIN_US=0: want whole":           {NodeOptions: NodeOptions{Spin: 500}},
		"GOCCL_TIMEOUT=-1ns: want a time":       {GroupOptions: GroupOptions{Timeout: -1}},
		`GOCCL_TRANSPORT="by hand": want auto`:  {GroupOptions: GroupOptions{Transport: "by hand"}},
		`GOCCL_TRANSPORT="\n\x00": want auto`:   {GroupOptions: GroupOptions{Transport: "\n\x00"}},
		"GOCCL_DETERMINISM=4 asks for level 4":  {GroupOptions: GroupOptions{Determinism: 4, Algo: "all_reduce=ring"}},
		"GOCCL_PEER_TIMEOUT=1s: want a time of": {NodeOptions: NodeOptions{PeerTimeout: 1e9}},
	} {
		err := o.Validate()
		require.ErrorIs(t, err, fault.Invalid)
		require.ErrorContains(t, err, want)
	}
	none := Options{NodeOptions: NodeOptions{Registered: -7, CudaRegistered: -7, Spin: -7}}
	none.CudaGraphs, none.WarnAfter = -7, -7
	require.NoError(t, none.Validate())
	require.Equal(t, "GOCCL_CUDA_GRAPHS=0\nGOCCL_CUDA_REGISTERED=0\nGOCCL_REGISTERED=0\nGOCCL_SPIN_US=0\n"+
		"GOCCL_WARN_AFTER=0\n", none.String())
}

// Each field has one row, in the half where its scope says.
func TestOptionFields(t *testing.T) {
	exported := func(v any) (n int) {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if field.IsExported() {
				n++
			}
		}
		return n
	}
	ofNode := 0
	for _, row := range optionTable {
		var o Options
		for text, printed := range samples[strings.TrimPrefix(row.Name, "GOCCL_")].taken {
			if printed != "" {
				require.NoError(t, row.set(&o, text))
			}
		}
		node, group := !reflect.ValueOf(o.NodeOptions).IsZero(), !reflect.ValueOf(o.GroupOptions).IsZero()
		require.Equal(t, []bool{row.Scope >= perProcess, row.Scope < perProcess}, []bool{node, group}, row.Name)
		require.Equal(t, deciders[row.Scope] != "", node, row.Name)
		if node {
			ofNode++
		}
	}
	const noText = 1 // Logger
	require.Equal(t, exported(NodeOptions{}), ofNode+noText)
	require.Equal(t, exported(GroupOptions{}), len(optionTable)-ofNode)
}

func TestUnknownOption(t *testing.T) {
	for text, want := range map[string]string{
		"GOCCL_TRANSPROT=shm": "unknown option GOCCL_TRANSPROT; did you mean GOCCL_TRANSPORT?",
		"goccl_algo=ring":     "did you mean GOCCL_ALGO?",
		"GOCCL_TLS":           "unknown option GOCCL_TLS",
		"=1":                  "; known: GOCCL_ALGO, GOCCL_BLOCKING_WAIT",
	} {
		_, err := ParseOptions("GOCCL_DEBUG=INFO\n" + text)
		require.ErrorIs(t, err, fault.Invalid)
		require.ErrorContains(t, err, want)
	}
}

// TestLaterGroups has groups of one process ask for different things: who uses a part of the Node
// first decides, and others are told.
func TestLaterGroups(t *testing.T) {
	n, err := NewNode(NodeOptions{Registered: 4 << 20, SocketFamily: "ipv4"})
	require.NoError(t, err)
	defer n.Close()
	groups := 0
	open := func(transport string, asked *NodeOptions) error {
		groups++
		_, err := n.Open(Config{Name: fmt.Sprint(groups), Size: 1, Options: GroupOptions{Transport: transport},
			Node: asked})
		return err
	}
	told := func(asked *NodeOptions) (lines []string) {
		clear(n.told)
		for range 2 { // each value once
			n.tellIgnored(asked, func(format string, args ...any) {
				lines = append(lines, fmt.Sprintf(format, args...))
			})
		}
		return lines
	}
	require.NoError(t, open("shm", &NodeOptions{SocketIfname: "nothing"}))
	require.Empty(t, told(&NodeOptions{SocketIfname: "nothing", IBSL: 3}), "nobody has decided that yet")
	require.ErrorContains(t, open("tcp", &NodeOptions{SocketIfname: "nothing"}), "GOCCL_SOCKET_IFNAME=nothing")
	require.NoError(t, open("tcp", &NodeOptions{SocketIfname: "lo", PeerTimeout: 5e9}), "the next one decides")
	require.Equal(t, []string{"", "lo"}, []string{n.opts.SocketFamily, n.opts.SocketIfname})

	require.NoError(t, open("tcp", nil))
	require.NoError(t, open("tcp", &NodeOptions{SocketIfname: "eth7", Port: "29600", Registered: 8 << 20}))
	require.Equal(t, []string{
		"GOCCL_PORT=29600 has no effect: the first group of a process that may use TCP decides, and that one had " +
			"no GOCCL_PORT; set it for that group, or for the whole process by the environment",
		"GOCCL_REGISTERED=8M has no effect: the first group of a process decides, and that one had " +
			"GOCCL_REGISTERED=4M; set it for that group, or for the whole process by the environment",
	}, told(&NodeOptions{SocketIfname: "lo", Port: "29600", PeerTimeout: 5e9, Registered: 8 << 20, IBSL: 3,
		RecordSignal: "USR1"}))
	defer signals.Use(func(syscall.Signal, func()) (bool, error) { return true, nil })()
	require.NoError(t, n.ListenToSignal("USR2"))
	require.Len(t, told(&NodeOptions{RecordSignal: "USR1"}), 1)
	require.Empty(t, told(&NodeOptions{RecordSignal: "USR2"}))
	require.Empty(t, told(nil))

	require.NoError(t, open("shm", &NodeOptions{SecretFile: "mine"}))
	for _, transport := range []string{"tcp", "auto"} {
		require.ErrorContains(t, open(transport, &NodeOptions{SecretFile: "mine"}), "GOCCL_SECRET_FILE=mine, but an "+
			"earlier group of this process has opened TCP with no GOCCL_SECRET_FILE; all groups need the same")
	}
	require.ErrorContains(t, open("tcp", &NodeOptions{Streams: 99}), "GOCCL_SOCKET_STREAMS=99")
}

// Each option is printed under one subject.
func TestOptionsBySubject(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range OptionHelp() {
		require.False(t, seen[o.Name], o.Name)
		seen[o.Name] = true
	}
	for _, row := range optionTable {
		require.True(t, seen[row.Name], "%s has no subject", row.Name)
	}
	require.Len(t, seen, len(optionTable))
}
