package shm

import (
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/ring"
	"github.com/stretchr/testify/require"
)

// row is a line "| offset | bytes | field | what |" of a table of PROTOCOL.md.
type row struct {
	offset, bytes int
	field         string
}

var layoutRow = regexp.MustCompile(`(?m)^\| (\d+) \|(?: (\d+))? \| (\w+) \|`)

// section returns the text of PROTOCOL.md between a heading and the next one.
func section(t *testing.T, heading string) string {
	text, err := os.ReadFile("PROTOCOL.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, found, "PROTOCOL.md has no heading %q", heading)
	body, _, _ := strings.Cut(rest, "\n#")
	return body
}

// table returns the layout that PROTOCOL.md gives under a heading.
func table(t *testing.T, name string) (rows []row) {
	for _, m := range layoutRow.FindAllStringSubmatch(section(t, "### "+name), -1) {
		r := row{field: m[3]}
		fmt.Sscan(m[1], &r.offset)
		fmt.Sscan(m[2], &r.bytes)
		rows = append(rows, r)
	}
	return rows
}

// packed returns the layout of a struct as encoding/binary writes it, after a first field of the
// given size.
func packed(first string, bytes int, value any) []row {
	rows := []row{{0, bytes, first}}
	s := reflect.ValueOf(value).Elem()
	for i := range s.NumField() {
		n := binary.Size(s.Field(i).Interface())
		rows = append(rows, row{bytes, n, s.Type().Field(i).Name})
		bytes += n
	}
	return append(rows, row{bytes, 0, "end"})
}

func TestProtocolDocumentsMessages(t *testing.T) {
	for name, want := range map[string][]row{
		"address": packed("Magic", len(addressMagic), &address{}),
		"hello":   packed("kind", 1, &hello{}),
		"open":    packed("kind", 1, &open{}),
		"bye":     packed("kind", 1, &bye{}),
		"refuse":  packed("kind", 1, &refuse{}),
		"joined":  packed("kind", 1, &joined{}),
		"control": {{0, 1, "kind"}, {1, 8, "Serial"}, {len(encode(&control{})), 0, "Text"}},
		"heard":   packed("kind", 1, &heard{}),
	} {
		require.Equal(t, want, table(t, name), name)
	}
	for name, message := range map[string]any{
		"hello": &hello{}, "open": &open{}, "bye": &bye{}, "refuse": &refuse{}, "joined": &joined{},
		"control": &control{}, "heard": &heard{}} {
		rows, packet := table(t, name), encode(message)
		require.Equal(t, rows[len(rows)-1].offset, len(packet), name)
		require.Contains(t, section(t, "### "+name), fmt.Sprintf("| 0 | 1 | kind | %d |\n", packet[0]), name)
	}
	require.Len(t, someAddress.encode(), table(t, "address")[7].offset)
}

// TestProtocolDocumentsDoorbell checks that the words of a doorbell lie where the document says:
// rings first, then sleepers.
func TestProtocolDocumentsDoorbell(t *testing.T) {
	require.Equal(t, []row{{0, 4, "rings"}, {4, 4, "sleepers"}}, table(t, "doorbell"))
	memory := make([]byte, park.DoorbellSize)
	b := park.DoorbellAt(memory)
	words := func() [2]uint32 {
		return [2]uint32{binary.NativeEndian.Uint32(memory), binary.NativeEndian.Uint32(memory[4:])}
	}
	b.Ring()
	require.Equal(t, [2]uint32{0, 0}, words())
	b.Prepare()
	require.Equal(t, [2]uint32{0, 1}, words())
	b.Ring()
	require.Equal(t, [2]uint32{1, 1}, words())
	b.Cancel()
	require.Equal(t, [2]uint32{1, 0}, words())
}

func TestProtocolDocumentsConstants(t *testing.T) {
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\w+) \| (\w+) \|$`).
		FindAllStringSubmatch(section(t, "## Constants"), -1) {
		found[m[1]] = m[2]
	}
	delete(found, "name")
	delete(found, "scanEvery") // a constant of package ring, which checks it
	want := map[string]string{}
	for name, value := range map[string]any{
		"version": version, "Depth": ring.Depth, "InlineBytes": ring.InlineBytes, "SlotBytes": ring.SlotBytes,
		"LeastSlot": ring.LeastSlot, "fullSessions": fullSessions, "LeaseBytes": ring.LeaseBytes,
		"MaxLeases": ring.MaxLeases, "ChannelBytes": ring.ChannelBytes, "DefaultPoolBytes": DefaultPoolBytes,
		"maxPoolBytes": maxPoolBytes, "maxArenaBytes": maxArenaBytes,
		"doorbellPage": doorbellPage, "DoorbellSize": park.DoorbellSize,
		"maxMessage": maxMessage, "maxArrivals": maxArrivals,
		"MaxControl": transport.MaxControl, "mostUnheard": mostUnheard,
		"MaxShare": transport.MaxShare, "MaxNote": transport.MaxNote,
		"maxHandshakes": maxHandshakes, "helloSpan": helloSpan, "handshakeSpan": handshakeSpan,
		"sendSpan": sendSpan, "endSpan": endSpan, "firstProbe": firstProbe, "probePeriod": probePeriod,
		"deniedSpan": deniedSpan,
	} {
		want[name] = fmt.Sprint(value)
	}
	require.Equal(t, want, found)
}
