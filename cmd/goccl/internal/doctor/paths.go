package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

// The measurements of a path between two hosts.
const (
	pings     = 50
	rateBytes = 4 << 20
	rateTime  = 200 * time.Millisecond // at least, in each direction
	mostRow   = 8 << 10                // bytes of a row as JSON
	mostWhy   = 2 << 10                // bytes of pathRow.Why
)

// pathRow is what was found out about the path between the first ranks of two hosts.
type pathRow struct {
	From      int     `json:"from"`
	To        int     `json:"to"`
	FromHost  string  `json:"from_host"`
	ToHost    string  `json:"to_host"`
	Transport string  `json:"transport"`
	Wire      string  `json:"wire,omitempty"`
	Why       string  `json:"why,omitempty"` // RDMA is not used
	RoundTrip float64 `json:"round_trip_us"` // of 8 bytes, through the library
	There     float64 `json:"there_gbs"`     // GB/s
	Back      float64 `json:"back_gbs"`
}

// measureHosts measures the paths between the first ranks of all hosts, one after the other. Rank 0
// prints them.
func measureHosts(asJSON bool, out io.Writer) error {
	opts, err := cli.Environment()
	if err != nil {
		return err
	}
	if opts.Debug == "" {
		opts.Debug = "INFO" // the wires between hosts that have several, and how ranks are joined
	}
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	comm, err := ccl.Init(context.Background(), opts)
	if errors.Is(err, ccl.Invalid) { // no launcher has started this process
		return cli.Misuse{Err: err}
	} else if err != nil {
		return err
	}
	defer comm.Close()
	rows, err := measurePaths(comm)
	if err != nil || comm.Rank() != 0 {
		return errors.Join(err, ccl.Barrier(context.Background(), comm))
	}
	if asJSON {
		err = cli.PrintJSON(out, rows)
	} else {
		err = printPaths(comm, rows, out)
	}
	return errors.Join(err, ccl.Barrier(context.Background(), comm))
}

func printPaths(comm *ccl.Communicator, rows []pathRow, out io.Writer) error {
	var sizes []string
	for _, ranks := range comm.Group().Hosts() {
		sizes = append(sizes, strconv.Itoa(len(ranks)))
	}
	fmt.Fprintf(out, "%d ranks; those that share memory: %s\n", comm.Size(), strings.Join(sizes, " + "))
	table := cli.Table(out)
	fmt.Fprintln(table, "from\tto\tby\tround trip\tthere\tback\twire")
	for _, r := range rows {
		fmt.Fprintf(table, "%s (rank %d)\t%s (rank %d)\t%s\t%.0f us\t%.2f GB/s\t%.2f GB/s\t%s\n", r.FromHost, r.From,
			r.ToHost, r.To, r.Transport, r.RoundTrip, r.There, r.Back, r.Wire)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Why != "" {
			fmt.Fprintf(out, "rank %d to rank %d not by RDMA: %s\n", r.From, r.To, r.Why)
		}
	}
	return nil
}

// measurePaths measures the path between the first ranks of each two hosts. All ranks call it; rank
// 0 gets the rows.
func measurePaths(comm *ccl.Communicator) (rows []pathRow, err error) {
	ctx := context.Background()
	var first []int
	for _, ranks := range comm.Group().Hosts() {
		first = append(first, slices.Min(ranks))
	}
	for i, from := range first {
		for _, to := range first[i+1:] {
			row := make([]byte, mostRow)
			switch comm.Rank() {
			case from:
				if row, err = measurePath(ctx, comm, to); err == nil && from != 0 {
					err = ccl.Send(ctx, comm, row, 0, 1)
				}
			case to:
				err = answerPath(ctx, comm, from)
			}
			if comm.Rank() == 0 && from != 0 && err == nil {
				_, err = ccl.Recv(ctx, comm, row, from, 1)
			}
			if err != nil {
				return nil, err
			}
			if comm.Rank() == 0 {
				var r pathRow
				if err := json.Unmarshal([]byte(strings.TrimRight(string(row), "\x00")), &r); err != nil {
					return nil, err
				}
				rows = append(rows, r)
			}
		}
	}
	return rows, nil
}

// measurePath is the part of the rank that keeps the time. It returns the row as JSON.
func measurePath(ctx context.Context, comm *ccl.Communicator, to int) ([]byte, error) {
	word, block := []int64{0}, make([]byte, rateBytes)
	ping := func() error {
		if err := ccl.Send(ctx, comm, word, to, 2); err != nil {
			return err
		}
		_, err := ccl.Recv(ctx, comm, word, to, 2)
		return err
	}
	times := make([]time.Duration, pings)
	for i := range times {
		begun := time.Now()
		if err := ping(); err != nil {
			return nil, err
		}
		times[i] = time.Since(begun)
	}
	slices.Sort(times)
	// A direction takes as many blocks as time allows. The first one, not counted, fills the path.
	rate := func(move func() error) (float64, error) {
		var begun time.Time
		for n := 0; ; n++ {
			more := int64(1)
			if n > 1 && time.Since(begun) > rateTime {
				more = 0
			}
			if word[0] = more; more == 0 {
				took := time.Since(begun)
				return float64((n-1)*rateBytes) / took.Seconds() / 1e9, ccl.Send(ctx, comm, word, to, 3)
			}
			err := ccl.Send(ctx, comm, word, to, 3)
			if err == nil {
				err = move()
			}
			if err != nil {
				return 0, err
			}
			if n == 0 {
				begun = time.Now()
			}
		}
	}
	there, err := rate(func() error {
		if err := ccl.Send(ctx, comm, block, to, 4); err != nil {
			return err
		}
		_, err := ccl.Recv(ctx, comm, word, to, 5)
		return err
	})
	if err != nil {
		return nil, err
	}
	back, err := rate(func() error { _, err := ccl.Recv(ctx, comm, block, to, 4); return err })
	if err != nil {
		return nil, err
	}
	paths := comm.Paths()
	p := paths[slices.IndexFunc(paths, func(p ccl.Path) bool { return p.Rank == to })]
	name, _ := os.Hostname()
	row := pathRow{From: comm.Rank(), To: to, FromHost: name, ToHost: p.Host,
		Transport: p.Transport, Why: p.Why[:min(len(p.Why), mostWhy)],
		RoundTrip: float64(times[pings/2].Nanoseconds()) / 1e3, There: there, Back: back}
	if p.From != "" {
		row.Wire = p.From + " to " + p.To
	}
	text, err := json.Marshal(row)
	if err == nil && len(text) > mostRow {
		err = fmt.Errorf("a row of %d bytes", len(text))
	}
	return append(text, make([]byte, max(0, mostRow-len(text)))...), err
}

// answerPath is the part of the other rank.
func answerPath(ctx context.Context, comm *ccl.Communicator, from int) error {
	word, block := []int64{0}, make([]byte, rateBytes)
	for range pings {
		if _, err := ccl.Recv(ctx, comm, word, from, 2); err != nil {
			return err
		}
		if err := ccl.Send(ctx, comm, word, from, 2); err != nil {
			return err
		}
	}
	for _, move := range []func() error{
		func() error {
			if _, err := ccl.Recv(ctx, comm, block, from, 4); err != nil {
				return err
			}
			return ccl.Send(ctx, comm, word, from, 5)
		},
		func() error { return ccl.Send(ctx, comm, block, from, 4) },
	} {
		for {
			if _, err := ccl.Recv(ctx, comm, word, from, 3); err != nil {
				return err
			}
			if word[0] == 0 {
				break
			}
			if err := move(); err != nil {
				return err
			}
		}
	}
	return nil
}
