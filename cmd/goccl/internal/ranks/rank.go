package ranks

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// Play has this process be one rank: it takes part with a node of its own, as the spec in the only
// argument says.
func Play(args []string, part func(node *ccl.Node, spec *Spec, opts ccl.GroupOptions) error) error {
	var spec Spec
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &spec) != nil {
		return fmt.Errorf("%s is for goccl's own use", Process)
	}
	opts, err := ccl.ParseOptions(spec.Options)
	if err != nil {
		return err
	}
	node, err := ccl.NewNode(opts.NodeOptions)
	if err != nil {
		return err
	}
	defer node.Close()
	return part(node, &spec, opts.GroupOptions)
}

// Bench is the part of a rank of goccl bench. Rank 0 prints the rows.
func Bench(node *ccl.Node, spec *Spec, opts ccl.GroupOptions) error {
	comms, err := Join(node, spec, opts)
	if err != nil {
		return err
	}
	return Measure(comms[0], spec, func(row Row) { // node.Close closes the Communicator
		text, _ := json.Marshal(row)
		fmt.Printf("%s\n", text)
	})
}

// Measure times a collective. All ranks call it; rank 0 has the rows reported.
func Measure(comm *ccl.Communicator, spec *Spec, report func(Row)) error {
	for _, size := range spec.Sizes {
		places := []bool{spec.InPlace}
		if spec.BothPlaces {
			places = []bool{false, true}
		}
		for _, inPlace := range places {
			here := *spec
			here.InPlace = inPlace
			row, err := measure(comm, &here, size)
			if err != nil {
				return err
			}
			if spec.Rank == 0 {
				report(*row)
			}
		}
	}
	return ccl.Barrier(context.Background(), comm)
}

// Join creates one group for each of the options: it prints this rank's addresses, reads the
// addresses of all ranks, and joins. It returns once all ranks have joined, as rendezvous of
// frameworks do: ranks that begin early would take the cores from the others.
func Join(node *ccl.Node, spec *Spec, each ...ccl.GroupOptions) ([]*ccl.Communicator, error) {
	endpoints, mine := make([]*ccl.Endpoint, len(each)), make([]json.RawMessage, len(each))
	for i, opts := range each {
		var err error
		endpoints[i], err = node.Open(ccl.Config{
			Name: fmt.Sprint("bench ", i), Rank: spec.Rank, Size: spec.Ranks, Timeout: time.Minute, Options: opts})
		if err != nil {
			return nil, err
		}
		mine[i] = endpoints[i].Address()
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%s\n", text)
	told := bufio.NewReader(os.Stdin)
	line, err := told.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	begin := make(chan struct{})
	go endWithParent(told, begin)
	var all [][]json.RawMessage // by rank
	if err := json.Unmarshal(line, &all); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	comms := make([]*ccl.Communicator, len(each))
	for i, endpoint := range endpoints {
		addresses := make([][]byte, spec.Ranks)
		for rank := range addresses {
			if rank >= len(all) || i >= len(all[rank]) {
				return nil, fmt.Errorf("rank %d has no address for group %d", rank, i)
			}
			addresses[rank] = all[rank][i]
		}
		addresses[spec.Rank] = endpoint.Address()
		if comms[i], err = endpoint.Join(ctx, addresses); err != nil {
			return nil, err
		}
	}
	fmt.Println()
	<-begin
	return comms, nil
}

// endWithParent ends this process when its parent has ended in any way: the pipe from the parent
// stays open for as long as the parent runs. A line from the parent closes begin.
func endWithParent(pipe *bufio.Reader, begin chan<- struct{}) {
	if _, err := pipe.ReadBytes('\n'); err == nil {
		close(begin)
	}
	io.Copy(io.Discard, pipe)
	os.Exit(1)
}

// measure times one size. The time of a block of calls is the time of its slowest rank; the median
// of all blocks counts.
func measure(comm *ccl.Communicator, spec *Spec, size int64) (*Row, error) {
	b, err := NewBuffers(comm, spec, size)
	if err != nil {
		return nil, err
	}
	defer b.Free()
	ctx := context.Background()
	wrong, err := b.Check(ctx)
	if err != nil {
		return nil, err
	}
	block := func(turns int) (float64, error) {
		if err := ccl.Barrier(ctx, comm); err != nil {
			return 0, err
		}
		start := time.Now()
		for range turns {
			if err := b.Run(ctx); err != nil {
				return 0, err
			}
		}
		slowest := []float64{time.Since(start).Seconds() / float64(turns)}
		err := ccl.AllReduce(ctx, comm, slowest, slowest, ccl.Max)
		return slowest[0], err
	}
	once := 0.0
	for range spec.Warmup {
		if once, err = block(3); err != nil {
			return nil, err
		}
	}
	turns := int(math.Max(1, math.Min(1e5, spec.Block.Seconds()/math.Max(once, 1e-8))))
	times := make([]float64, spec.Repeat)
	for i := range times {
		if times[i], err = block(turns); err != nil {
			return nil, err
		}
	}
	p99, err := b.latest(ctx, min(spec.Singles, max(10, 5*turns)))
	if err != nil {
		return nil, err
	}
	if spec.Coll == dtype.Send { // a ping and a pong
		for i := range times {
			times[i] /= 2
		}
		p99 /= 2
	}
	var blocks []float64
	if spec.EachBlock {
		for _, t := range times {
			blocks = append(blocks, t*1e6)
		}
	}
	slices.Sort(times)
	seconds := times[len(times)/2]
	op := "none"
	if spec.Coll.Reduces() {
		op = spec.Op.String()
	}
	bw := float64(b.Bytes) / math.Max(seconds, 1e-12) / 1e9
	return &Row{
		Bytes: b.Bytes, Count: b.Bytes / int64(spec.Type.Size()), Type: spec.Type.String(), Op: op,
		InPlace: spec.InPlace, Micros: seconds * 1e6, AlgBW: bw, BusBW: bw * spec.Coll.BusFactor(spec.Ranks),
		Min: times[0] * 1e6, P99: p99 * 1e6, Wrong: wrong, Blocks: blocks, Calls: turns,
	}, nil
}

// latest makes calls, each of which is timed, and returns the 99th percentile in seconds, of the
// rank where it is longest. No barrier is between the calls: a rank that is behind makes the others
// wait, as it does elsewhere. The shortest call says nothing: where calls overlap, a rank waits in
// one of them for two.
func (b *Buffers) latest(ctx context.Context, calls int) (float64, error) {
	if calls == 0 {
		return 0, nil
	}
	times := make([]float64, calls)
	if err := ccl.Barrier(ctx, b.Comm); err != nil {
		return 0, err
	}
	for i := range times {
		start := time.Now()
		if err := b.Run(ctx); err != nil {
			return 0, err
		}
		times[i] = time.Since(start).Seconds()
	}
	slices.Sort(times)
	p99 := []float64{times[(calls*99+99)/100-1]}
	err := ccl.AllReduce(ctx, b.Comm, p99, p99, ccl.Max)
	return p99[0], err
}
