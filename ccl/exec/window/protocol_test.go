package window

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
)

// row is a line "| offset | bytes | field | what |" of a table of PROTOCOL.md.
type row struct {
	offset, bytes int
	field         string
}

var layoutRow = regexp.MustCompile(`(?m)^\| (\d+) \|(?: (\d+))? \| (\w+) \|`)

// table returns the layout that PROTOCOL.md gives under a heading.
func table(t *testing.T, heading string) (rows []row) {
	text, err := os.ReadFile("PROTOCOL.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n### "+heading+"\n")
	require.True(t, found, "PROTOCOL.md has no heading %q", heading)
	body, _, _ := strings.Cut(rest, "\n#")
	for _, m := range layoutRow.FindAllStringSubmatch(body, -1) {
		r := row{field: m[3]}
		fmt.Sscan(m[1], &r.offset)
		fmt.Sscan(m[2], &r.bytes)
		rows = append(rows, r)
	}
	return rows
}

func TestProtocolDocumentsRecords(t *testing.T) {
	var want []row
	record := reflect.TypeFor[Record]()
	for i := range record.NumField() {
		f := record.Field(i)
		want = append(want, row{int(f.Offset), int(f.Type.Size()), f.Name})
	}
	require.Equal(t, append(want, row{RecordBytes, 0, "end"}), table(t, "record"))
}

func TestProtocolDocumentsWindows(t *testing.T) {
	var p page
	used := int(unsafe.Sizeof(p))
	require.Equal(t, []row{
		{int(unsafe.Offsetof(p.left)), int(unsafe.Offsetof(p.seat)), "left"},
		{int(unsafe.Offsetof(p.seat)), int(unsafe.Offsetof(p.records) - unsafe.Offsetof(p.seat)), "seat"},
		{int(unsafe.Offsetof(p.records)), int(unsafe.Sizeof(p.records)), "records"},
		{used, header - used, "unused"},
		{header, 0, "end"},
	}, table(t, "window"))
}

func TestProtocolDocumentsConstants(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	require.NoError(t, err)
	for name, value := range map[string]int{
		"header": header, "WindowRecords": plan.WindowRecords, "WindowSlots": plan.WindowSlots,
		"InlineBytes": program.InlineBytes, "MaxCounts": program.MaxCounts,
		"MaxExposed": program.MaxExposed, "MaxSignals": program.MaxSignals,
	} {
		require.Contains(t, string(text), fmt.Sprintf("\n| `%s` | %d |\n", name, value))
	}
}
