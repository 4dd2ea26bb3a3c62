package bench

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

// form is how rows are printed.
type form int

const (
	asTable form = iota
	asJSON
	asCSV
	asGo
)

func formOf(json, csv, golang bool) form {
	switch {
	case json:
		return asJSON
	case csv:
		return asCSV
	case golang:
		return asGo
	}
	return asTable
}

// printer prints the rows of one spec as they come.
type printer struct {
	form      form
	spec      ranks.Spec
	transport string
	out       io.Writer
	hosts     int
	rows      int
	wrong     int64
}

// columns are those of CSV, with the names of Row's JSON.
var columns = strings.Fields("op ranks hosts transport size count type redop in_place time_us min_us p99_us algbw_gbs " +
	"busbw_gbs wrong")

// newPrinter prints what comes before the rows.
func newPrinter(spec ranks.Spec, hosts int, form form, out io.Writer) *printer {
	opts, _ := ccl.ParseOptions(spec.Options)
	opts.EnsureDefaults()
	p := &printer{form: form, spec: spec, transport: opts.Transport, out: out, hosts: hosts}
	switch form {
	case asTable:
		of := ""
		if hosts > 1 {
			of = fmt.Sprintf(" of %d hosts", hosts)
		}
		fmt.Fprintf(out, "# %v on %d ranks%s, transport %s; us of a call: time in the median of %d blocks, min in the "+
			"fastest, p99 of single calls; slowest rank; GB/s\n", spec.Coll, spec.Ranks, of, p.transport, spec.Repeat)
		head := fmt.Sprintf("%12s %12s %8s %8s", "size (B)", "count", "type", "redop")
		for range p.places() {
			head += fmt.Sprintf(" %11s %9s %10s %8s %8s %6s", "time", "min", "p99", "algbw", "busbw", "wrong")
		}
		if p.places() > 1 {
			const width = len(" 12345678.90 123456.78 1234567.89 1234.678 1234.678 123456")
			fmt.Fprintf(out, "%43s", "")
			for _, place := range []string{" out of place ", " in place "} {
				fmt.Fprintf(out, " %s%s", place, strings.Repeat("-", width-1-len(place)))
			}
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, head)
	case asCSV:
		p.record(columns)
	case asGo:
		fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: github.com/goccl/goccl\n", runtime.GOOS, runtime.GOARCH)
		if cpu, _ := probe.Processor(); cpu != "" {
			fmt.Fprintf(out, "cpu: %s\n", cpu)
		}
	}
	return p
}

// places returns how many rows there are for a size.
func (p *printer) places() int {
	if p.spec.BothPlaces {
		return 2
	}
	return 1
}

func (p *printer) row(r ranks.Row) {
	p.wrong += r.Wrong
	switch p.form {
	case asTable:
		if p.rows%p.places() == 0 {
			fmt.Fprintf(p.out, "%12d %12d %8s %8s", r.Bytes, r.Count, r.Type, r.Op)
		}
		fmt.Fprintf(p.out, " %11.2f %9.2f %10.2f %8.3f %8.3f %6d", r.Micros, r.Min, r.P99, r.AlgBW, r.BusBW, r.Wrong)
		if p.rows%p.places() == p.places()-1 {
			fmt.Fprintln(p.out)
		}
	case asJSON:
		text, _ := json.Marshal(r)
		fmt.Fprintf(p.out, "%s\n", text)
	case asCSV:
		number := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
		p.record([]string{p.spec.Coll.String(), strconv.Itoa(p.spec.Ranks), strconv.Itoa(p.hosts), p.transport,
			strconv.FormatInt(r.Bytes, 10), strconv.FormatInt(r.Count, 10), r.Type, r.Op, strconv.FormatBool(r.InPlace),
			number(r.Micros), number(r.Min), number(r.P99), number(r.AlgBW), number(r.BusBW),
			strconv.FormatInt(r.Wrong, 10)})
	case asGo:
		p.benchmarks(r)
	}
	p.rows++
}

// benchmarks prints a block of calls as a run of a benchmark.
func (p *printer) benchmarks(r ranks.Row) {
	var name strings.Builder
	for word := range strings.SplitSeq(p.spec.Coll.String(), "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	place := "out"
	if r.InPlace {
		place = "in"
	}
	fmt.Fprintf(&name, "/ranks=%d/hosts=%d/transport=%s/type=%s/redop=%s/place=%s/size=%d-%d",
		p.spec.Ranks, p.hosts, p.transport, r.Type, r.Op, place, r.Bytes, runtime.GOMAXPROCS(0))
	for _, micros := range r.Blocks {
		fmt.Fprintf(p.out, "Benchmark%s\t%8d\t%12.1f ns/op\t%10.2f MB/s\t%10.1f p99-ns\n", name.String(), r.Calls, micros*1e3,
			float64(r.Bytes)/max(micros, 1e-9), r.P99*1e3)
	}
}

// record prints a line of CSV, at once.
func (p *printer) record(fields []string) {
	w := csv.NewWriter(p.out)
	w.Write(fields)
	w.Flush()
}

func (p *printer) end() error {
	if p.wrong > 0 {
		return fmt.Errorf("%d elements were wrong", p.wrong)
	}
	if p.rows == 0 {
		return errors.New("nothing was measured")
	}
	return nil
}
