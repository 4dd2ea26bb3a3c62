package ring

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented returns the cells "| offset | bytes | field |" of a table of ../shm/PROTOCOL.md.
func documented(t *testing.T, name string) (rows []string) {
	text, err := os.ReadFile("../shm/PROTOCOL.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n### "+name+"\n")
	require.True(t, found, name)
	body, _, _ := strings.Cut(rest, "\n#")
	body, _, _ = strings.Cut(body, "\n\n|") // the second table of a section
	for line := range strings.Lines(
		strings.TrimPrefix(body, "\n| offset | bytes | field | what |\n|---|---|---|---|\n")) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			rows = append(rows, strings.Join(cells[1:4], "|"))
		}
	}
	return rows
}

// TestProtocolDocumentsLayout compares the document with where the compiler has put the fields.
func TestProtocolDocumentsLayout(t *testing.T) {
	for name, value := range map[string]any{"area": area{}, "line": line{}} {
		var want []string
		layout := reflect.TypeOf(value)
		for i := range layout.NumField() {
			f := layout.Field(i)
			want = append(want, fmt.Sprintf(" %d | %d | %s ", f.Offset, f.Type.Size(), f.Name))
		}
		want = append(want, fmt.Sprintf(" %d | | end ", layout.Size()))
		require.Equal(t, want, documented(t, name), name)
	}
}

func TestProtocolDocumentsKinds(t *testing.T) {
	text, err := os.ReadFile("../shm/PROTOCOL.md")
	require.NoError(t, err)
	for kind, longest := range map[int]int{inLine: InlineBytes, inSlot: SlotBytes, inPool: LeaseBytes} {
		require.Regexp(t, fmt.Sprintf(`(?m)^\| %d \| in [^|]* \| %d \|$`, kind, longest), string(text))
	}
	require.Contains(t, string(text), fmt.Sprintf("\n| scanEvery | %d |\n", scanEvery))
	require.Equal(t, uint64(7)<<32|uint64(inPool)<<28|9, packWord(7, inPool, 9),
		"number (32 bits), kind (4), length (28), from the top")
}
