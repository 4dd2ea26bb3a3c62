package exports

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/member"
)

// enums reads the enumerations of goccl.h: name without GOCCL_ → number.
func enums(t *testing.T) map[string]int {
	text, err := os.ReadFile("goccl.h")
	require.NoError(t, err)
	text = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAll(text, nil)
	all := map[string]int{}
	for _, body := range regexp.MustCompile(`(?s)typedef enum \{(.*?)\}`).FindAllStringSubmatch(string(text), -1) {
		next := 0
		for _, item := range strings.Split(body[1], ",") {
			name, value, given := strings.Cut(strings.TrimSpace(item), "=")
			if given {
				next, err = strconv.Atoi(strings.TrimSpace(value))
				require.NoError(t, err)
			}
			all[strings.TrimPrefix(strings.TrimSpace(name), "GOCCL_")] = next
			next++
		}
	}
	return all
}

func TestNumbersOfTheHeader(t *testing.T) {
	header := enums(t)
	count := 0
	for _, typ := range dtype.Types() {
		require.Equal(t, int(typ), header[strings.ToUpper(typ.String())], "%v", typ)
		count++
	}
	for _, op := range dtype.Ops() {
		name := strings.ToUpper(op.String())
		if op == dtype.PremulSum {
			name = "PREMUL_SUM"
		}
		require.Contains(t, header, name)
		require.Equal(t, int(op), header[name], "%v", op)
		count++
	}
	for _, coll := range append(dtype.Collectives(), dtype.Send, dtype.Recv) {
		require.Equal(t, int(coll), header[strings.ToUpper(coll.String())], "%v", coll)
		count++
	}
	codes := map[string]fault.Code{
		"OK": fault.OK, "INVALID": fault.Invalid, "NOT_SUPPORTED": fault.NotSupported, "TIMEOUT": fault.Timeout,
		"PEER_LOST": fault.PeerLost, "PEER_LEFT": fault.PeerLeft, "MISMATCH": fault.Mismatch,
		"ABORTED": fault.Aborted, "CLOSED": fault.Closed, "FORKED": fault.Forked, "SYSTEM": fault.System,
		"INTERNAL": fault.Internal,
	}
	for name, code := range codes {
		require.Contains(t, header, name)
		require.Equal(t, int(code), header[name], name)
		count++
	}
	for name, op := range map[string]member.Op{
		"MEETING_ADD": member.Add, "MEETING_SET": member.Set, "MEETING_CHECK": member.Check,
		"MEETING_READ": member.Read, "MEETING_SWAP": member.Swap, "MEETING_PAUSE": member.Pause,
		"MEETING_LOOK": member.Look, "MEETING_OVER": member.Over,
	} {
		require.Equal(t, int(op), header[name], name)
		count++
	}
	require.Len(t, header, count, "the header has constants that Go does not have")
}

// Every function of the header looks first whether this process is a forked child, and libgoccl
// shows it.
func TestFunctionsOfTheHeader(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	header, guards, shown := read("goccl.h"), read("guard.c"), read("../libgoccl/libgoccl.map")
	functions := regexp.MustCompile(`(?m)^int (goccl_\w+)\(`).FindAllStringSubmatch(header, -1)
	require.Greater(t, len(functions), 30)
	for _, f := range functions {
		require.Regexp(t, `int `+f[1]+`\([^)]*\) \{\n  GUARD\(`, guards)
		listed := false
		for _, pattern := range regexp.MustCompile(`goccl_[\w*]+`).FindAllString(shown, -1) {
			prefix, whole := strings.CutSuffix(pattern, "*")
			listed = listed || f[1] == pattern || whole && strings.HasPrefix(f[1], prefix)
		}
		require.True(t, listed, f[1])
	}
}
