package network

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/fault"
)

// system is a file of NCCL's form with a CPU; its line 3 is within that.
func system(text string) string {
	return "<system version=\"1\">\n<cpu numaid=\"0\">\n" + text + "\n</cpu></system>"
}

// gpus is a file of NCCL's form with two GPUs; its line 4 is within the first.
func gpus(text string) string {
	return system("<pci busid=\"0000:01:00.0\"><gpu dev=\"0\" sm=\"80\">\n" + text +
		"</gpu></pci>\n<pci busid=\"0000:02:00.0\"><gpu dev=\"1\" sm=\"80\"/></pci>")
}

// machine is a file of hwloc's form; its line 3 is within the Machine.
func machine(text string) string {
	return "<topology version=\"2.0\">\n<object type=\"Machine\">\n" + text + "\n</object></topology>"
}

const pu = `<object type="PU" os_index="0"/>`

func TestHostileNCCL(t *testing.T) {
	for _, c := range [][2]string{
		{`<system/>`, `line 1, column 1: version "" of NCCL's form; this version reads 1`},
		{"\n  <system version=\"2\"/>", `line 2, column 3: version "2" of NCCL's form`},
		{`<system version="1"/>`, "line 1, column 1: no node is a rank"},
		{`<system version="1"><cpu/></system>`, "line 1, column 21: a <cpu> without numaid"},
		{`<system version="1"><cpu numaid="-2"/></system>`, `numaid="-2": want a whole number, -1 to 65536`},
		{`<system version="1"><cpu numaid="0"/><cpu numaid="0"/></system>`, "column 38: a second <cpu> with numaid 0"},
		{`<system version="1">` + numbered(600, `<cpu numaid="%d"/>`) + `</system>`, "more than 512 <cpu>"},
		{`<system version="1"><gpu dev="0"/></system>`, "column 21: <gpu> within <system>; want it within <pci>"},
		{`<system version="1"><system version="1"/></system>`, "<system> within <system>; want it around everything else"},
		{system("<pci/>"), `line 3, column 1: busid="": want a bus id, such as 0000:3b:00.0`},
		{system(`<pci busid="zz"/>`), `busid="zz": want a bus id`},
		{system("<pci busid=\"0000:01:00.0\"/>\n<pci busid=\"00000000:01:00.0\"/>"),
			`line 4, column 1: a second <pci> with busid "00000000:01:00.0"; the first is in line 3`},
		{system(`<pci busid="0:1:0.0"><pci busid="0:1:0.0"/></pci>`), "line 3, column 22: a second <pci>"},
		{gpus(`<nvlink target="0000:01:00.0"/>`), `line 4, column 1: an <nvlink> from "0000:01:00.0" to itself`},
		{gpus(`<nvlink target="0000:03:00.0"/>`), `an <nvlink> to "0000:03:00.0", which no <pci> with a GPU has`},
		{gpus(`<nvlink/>`), "an <nvlink> without target"},
		{gpus(`<nvlink target="me"/>`), `target="me": want a bus id`},
		{gpus(`<nvlink target="0000:02:00.0" count="-1"/>`), `count="-1": want a whole number, 1 to 1024`},
		{gpus(`<nvlink target="0000:02:00.0" count="NaN"/>`), `count="NaN": want`},
		{gpus(`<nvlink target="0000:02:00.0" count="99999999999999999999"/>`), "want a whole number, 1 to 1024"},
		{gpus(`<c2c bw="-5" count="1"/>`), `bw="-5": want a whole number, 1 to 10000000`},
		{gpus("") + "<!-- -->\n<system/>", "a second root element <system>"},
		{gpus("") + "and more", "line 6, column 16: text outside of the root element"},
		{system(`<pci busid="1"><gpu dev="0"/></pci><pci busid="2"><gpu dev="0"/></pci>`), "a second <gpu> with dev 0"},
		{system(`<pci busid="1"><gpu dev="0" sm="-80"/></pci>`), `sm="-80": want a whole number, 10 to 999`},
		{slot("8 GT/s", "-1"), `link_width="-1": want a whole number, 0 to 255`},
		{slot("8 GT/s", "64"), `link_width="64": want 1 to 32 lanes`},
		{slot("NaN GT/s", "8"), `link_speed="NaN": want a number, 0 to 256`},
		{slot("-8 GT/s", "8"), `link_speed="-8": want`},
		{slot("1e300 GT/s", "8"), `link_speed="1e300": want`},
		{slot("fast", "8"), `link_speed="fast": want`},
		{system(`<nic><net name="a" dev="0" speed="-2"/></nic>`), `speed="-2": want a whole number, -1 to 100000000`},
		{system(`<nic><net name="a" dev="0" speed="1e9"/></nic>`), `speed="1e9": want`},
		{system(`<nic><net name="a" dev="0"/><net name="a" dev="1"/></nic>`), `a second "a"; names are unique`},
		{system(`<nic>` + numbered(1000, `<net name="n%[1]d" dev="%[1]d" speed="%[1]d"/>`) + `</nic>`),
			"line 1, column 1: links of more than 256 different rates"},
		{`<system version="1"><cpu numaid="0" host_hash="1"/>` + "\n" + `<cpu numaid="0" host_hash="2"/></system>`,
			"line 2, column 1: host1/cpu0 has no path to other hosts; add a <nic>"},
	} {
		refused(t, c[0], c[1])
	}
}

func slot(speed, width string) string {
	return system(fmt.Sprintf(`<pci busid="1" link_speed="%s" link_width="%s"><gpu dev="0"/></pci>`, speed, width))
}

// numbered repeats a format with 0 to n-1.
func numbered(n int, format string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}

func TestHostileHWLOC(t *testing.T) {
	for _, c := range [][2]string{
		{`<topology version="9.0"/>`, `line 1, column 1: version "9.0" of hwloc's form; this version reads 1, 2 and 3`},
		{`<topology/>`, "line 1, column 1: no <object>; want one of type Machine"},
		{machine(""), "line 1, column 1: no node is a rank"},
		{"<topology>" + pu + "\n" + pu + "</topology>", "line 2, column 1: a second <object> outside of the first"},
		{machine(`<object/>`), `line 3, column 1: <object> of type "", which this version does not know`},
		{machine(`<object type="Brain"/>`), `<object> of type "Brain"`},
		{machine(`<object type="Machine"/>`), "a Machine inside of another object"},
		{machine(pu + `<object type="Bridge"><object type="Group"><object type="Core"/></object></object>`),
			"line 3, column 76: a Core inside of a device or a bridge"},
		{machine(`<object type="Core"/>`), "a Core without a PU"},
		{machine(`<object type="PU"/>`), "a PU without os_index"},
		{machine(`<object type="PU" os_index="4294967295"/>`), "a PU without os_index"},
		{machine(`<object type="PU" os_index="-2"/>`), `os_index="-2": want a whole number, -1 to 4294967295`},
		{machine(`<object type="NUMANode"/>` + pu), "a NUMANode without os_index"},
		{machine(pu + "\n" + pu), `line 4, column 1: a second "core0"; names are unique`},
		{machine(pu + numbered(600, `<object type="NUMANode" os_index="%d"/>`)), "more than 512 NUMA nodes"},
		{machine(pu + `<object type="NUMANode" os_index="0" local_memory="-1"/>`), `local_memory="-1": want`},
		{machine(`<object type="Cache" depth="-1">` + pu + `</object>`), `depth="-1": want a whole number, 1 to 9`},
		{machine(`<object type="L3Cache" cache_size="NaN">` + pu + `</object>`), `cache_size="NaN": want`},
		{machine(pu + `<object type="PCIDev" pci_busid="1" pci_link_speed="nan"><object type="OSDev" osdev_type="2" name="a"/></object>`),
			`pci_link_speed="nan": want a number, 0 to 100000`},
		{machine(pu + `<object type="PCIDev" pci_busid="1" pci_link_speed="-1"><object type="OSDev" osdev_type="2" name="a"/></object>`),
			`pci_link_speed="-1": want`},
		{machine(pu + strings.Repeat("\n"+`<object type="OSDev" osdev_type="2" name="a"/>`, 2)), `line 5, column 1: a second "a"`},
		{machine(`<object type="PU" os_index="0" os_index="1"/>`), "<object> has a second attribute os_index"},
	} {
		refused(t, c[0], c[1])
	}
}

// bombs are files that take much of a reader that has no limits.
func bombs() [][2]string {
	const mega = 1 << 20
	entities := "<?xml version=\"1.0\"?>\n<!DOCTYPE lolz [<!ENTITY a \"" + strings.Repeat("a", 1000) + `">` +
		`<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>` + "\n" +
		`<system version="1" name="&c;"/>`
	return [][2]string{
		{entities, "line 2, column 1: declarations inside the file are not read; remove <!DOCTYPE lolz [<!ENTITY"},
		{`<system version="1" name="&c;"/>`, "line 1, column 30: invalid character entity &c;"},
		{"<!DOCTYPE x SYSTEM \"a\">\n<!ENTITY a \"b\">", "line 2, column 1: declarations inside the file are not read"},
		{`<system version="1">` + strings.Repeat("<cpu numaid=\"0\">", 100_000), "<cpu> within <cpu>"},
		{strings.Repeat("<a>", 100_000), "line 1, column 1: the root element is <a>; want <system> of NCCL"},
		{machine(strings.Repeat("<a>", 100_000)), "line 3, column 187: elements inside each other, more than 64 deep"},
		{machine(strings.Repeat(`<object type="Group">`, 100_000)), "more than 64 deep"},
		{machine(strings.Repeat(`<object type="Misc"/>`, 200_000)), "more than 200000 tags and texts"},
		{machine(strings.Repeat("<b/>", 2*mega-100)), "more than 200000 tags and texts"},
		{machine(strings.Repeat("<!---->", mega)), "more than 200000 tags and texts"},
		{machine(numbered(80_000, `<object type="PU" os_index="%d"/>`) + "<"), "line 3, column 2868892: expected element name after <"},
		{machine(`<object type="PU" name="` + strings.Repeat("x", 2*mega) + `"/>`), "a tag or a text of more than 1048576 bytes"},
		{machine(strings.Repeat(`<object type="PU" name="`+strings.Repeat("x", mega-64)+`"/>`, 7)),
			"a PU without os_index"},
		{machine("<object" + numbered(400_000, ` a%d=""`) + "/>"), "a tag or a text of more than 1048576 bytes"},
		{machine(strings.Repeat("<x"+numbered(100_000, ` a%d=""`)+"/>", 6)), "100000 attributes, at most 64"},
		{machine(strings.Repeat("<x"+numbered(64, ` a%d=""`)+"/>", 17_000)), "line 1, column 1: no node is a rank"},
		{"<" + strings.Repeat("n", 900_000) + "/>", "the root element is <nnnn"},
		{"<a" + strings.Repeat("n", 900_000) + "></b>", "the root element is <an"},
		{"<" + strings.Repeat(" ", 8*mega), "longer than 8388608 bytes"},
		{"<!--" + strings.Repeat("-", 900_000), "line 1, column"},
		{"<![CDATA[" + strings.Repeat("]", 900_000), "line 1, column"},
		{"<?xml version=\"1.0\" encoding=\"" + strings.Repeat("latin", 1000) + "\"?><topology/>",
			"another encoding than UTF-8"},
		{"<?xml version=\"1.1\"?><topology/>", `unsupported version "1.1"`},
		{"<x:system version=\"1\"/>", "the root element is <system>; want"},
		{"<", "line 1, column 2: unexpected EOF"},
		{"  <\x00\xff\x80", "line 1, column 4: "},
		{"<system version=\"1\">\n\x00</system>", "line 2, column 2: illegal character code U+0000"},
		{"<system version=\"1\">\n<cpu", "line 2, column 5: unexpected EOF"},
		{"<system version=\"1\">\n</topology>", "line 2, column 12: element <system> closed by </topology>"},
		{"<!-- nothing -->\n", "line 2, column 1: the file ends before its first element"},
		{"<html><body/></html>", "the root element is <html>; want <system> of NCCL or <topology> of hwloc"},
	}
}

func TestXMLBombs(t *testing.T) {
	for _, c := range bombs() {
		refused(t, c[0], c[1])
	}
}

// refused checks that reading a file is an error with these words, and takes little for it.
func refused(t *testing.T, text, words string) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	_, err := Read(strings.NewReader(text))
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, words)
	require.ErrorIs(t, err, fault.Invalid)
	require.Regexp(t, `topology: line \d+, column \d+: `, err.Error())
	require.NotContains(t, err.Error(), "\n")
	require.Less(t, len(err.Error()), 1000)
	require.Less(t, took, 10*time.Second) // where nothing else runs it is less than one
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20), words)
}
