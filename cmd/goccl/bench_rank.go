package main

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
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// benchRank is one rank: it prints its address, reads the addresses of all ranks, and measures.
// Rank 0 prints the rows.
func benchRank(args []string) error {
	var spec benchSpec
	if len(args) != 1 {
		return fmt.Errorf("%s is for goccl bench's own use", benchRankVerb)
	}
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return err
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
	spec.node = node
	if spec.Candidates != nil {
		return tuneRank(node, &spec, opts.GroupOptions)
	}
	comms, err := joinRanks(node, &spec, opts.GroupOptions)
	if err != nil {
		return err
	}
	comm := comms[0] // node.Close closes it
	for size := spec.Min; ; size *= spec.Factor {
		row, err := measure(comm, &spec, size)
		if err != nil {
			return err
		}
		if spec.Rank == 0 {
			text, _ := json.Marshal(row)
			fmt.Printf("%s\n", text)
		}
		if size == 0 || size > spec.Max/spec.Factor {
			return ccl.Barrier(context.Background(), comm)
		}
	}
}

// joinRanks creates one group for each of the options: it prints this rank's addresses, reads the
// addresses of all ranks, and joins. It returns once all ranks have joined, as rendezvous of
// frameworks do: ranks that begin early would take the cores from the others.
func joinRanks(node *ccl.Node, spec *benchSpec, each ...ccl.GroupOptions) ([]*ccl.Communicator, error) {
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
func measure(comm *ccl.Communicator, spec *benchSpec, size int64) (*benchRow, error) {
	b, err := newBenchBuffers(comm, spec, size)
	if err != nil {
		return nil, err
	}
	defer b.free()
	ctx := context.Background()
	wrong, err := b.check(ctx)
	if err != nil {
		return nil, err
	}
	block := func(turns int) (float64, error) {
		if err := ccl.Barrier(ctx, comm); err != nil {
			return 0, err
		}
		start := time.Now()
		for range turns {
			if err := b.run(ctx); err != nil {
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
	if spec.Coll == dtype.Send {
		for i := range times {
			times[i] /= 2 // a ping and a pong
		}
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
	bw := float64(b.bytes) / math.Max(seconds, 1e-12) / 1e9
	return &benchRow{
		Bytes: b.bytes, Count: b.bytes / int64(spec.Type.Size()), Type: spec.Type.String(), Op: op,
		Micros: seconds * 1e6, AlgBW: bw, BusBW: bw * busFactor(spec.Coll, spec.Ranks),
		Wrong: wrong, Blocks: blocks,
	}, nil
}

// busFactor returns nccl-tests' ratio of bus bandwidth to algorithm bandwidth: the bytes that the
// busiest link carries for each byte of the vector.
func busFactor(coll dtype.Collective, ranks int) float64 {
	n := float64(ranks)
	switch coll {
	case dtype.AllReduce:
		return 2 * (n - 1) / n
	case dtype.AllGather, dtype.ReduceScatter, dtype.AllToAll, dtype.Gather, dtype.Scatter:
		return (n - 1) / n
	}
	return 1
}

// benchBuffers holds the memory of one size and the calls that use it.
type benchBuffers struct {
	comm    *ccl.Communicator
	spec    *benchSpec
	bytes   int64 // of the whole vector
	in, out []byte
	call    ccl.Call
	back    ccl.Call // the other direction of a ping-pong
}

func newBenchBuffers(comm *ccl.Communicator, spec *benchSpec, size int64) (*benchBuffers, error) {
	elem, n := int64(spec.Type.Size()), int64(spec.Ranks)
	count := size / elem
	blocks := func(many bool) int64 {
		if many {
			return n
		}
		return 1
	}
	coll := spec.Coll
	nIn, nOut := coll.InBlocks(spec.Ranks, spec.Rank, spec.Root), coll.OutBlocks(spec.Ranks, spec.Rank, spec.Root)
	perRank := coll == dtype.AllGather || coll == dtype.ReduceScatter ||
		coll == dtype.AllToAll || coll == dtype.Gather || coll == dtype.Scatter
	if perRank {
		count = max(1, count/n)
	}
	b := &benchBuffers{comm: comm, spec: spec, bytes: count * blocks(perRank) * elem}
	if coll == dtype.Barrier {
		b.bytes, count = 0, 0
	}
	if err := b.alloc(int64(max(nIn, 1))*count*elem, int64(max(nOut, 1))*count*elem); err != nil {
		return nil, err
	}
	b.call = ccl.Call{Coll: coll, Type: spec.Type, Op: spec.Op, Root: spec.Root, Factor: 1}
	b.call.In, b.call.Out = cutBlocks(b.in, nIn, count, elem), cutBlocks(b.out, nOut, count, elem)
	if spec.InPlace && nIn > 0 && nOut > 0 {
		switch {
		case coll == dtype.AllToAll:
			return nil, fmt.Errorf("--in-place: all_to_all has no in-place form")
		case nIn >= nOut:
			b.call.Out = b.call.In[:1]
			if nOut < nIn {
				b.call.Out = b.call.In[spec.Rank : spec.Rank+1]
			}
		default:
			b.call.In = b.call.Out[spec.Rank : spec.Rank+1]
		}
	}
	if coll == dtype.Send {
		ping := ccl.Call{Coll: dtype.Send, Type: spec.Type, Root: 1, In: cutBlocks(b.in, 1, count, elem)}
		pong := ccl.Call{Coll: dtype.Recv, Type: spec.Type, Root: 1, Out: cutBlocks(b.out, 1, count, elem)}
		if spec.Rank == 1 {
			ping, pong = pong, ping
			ping.Root, pong.Root = 0, 0
		}
		b.call, b.back = ping, pong
	}
	return b, nil
}

// alloc allocates the buffers.
func (b *benchBuffers) alloc(in, out int64) (err error) {
	if !b.spec.Registered {
		b.in, b.out = make([]byte, in), make([]byte, out)
		return nil
	}
	if b.in, err = b.spec.node.Alloc(int(max(in, 1))); err == nil {
		b.out, err = b.spec.node.Alloc(int(max(out, 1)))
	}
	return err
}

// free gives registered buffers back.
func (b *benchBuffers) free() {
	if b.spec.Registered {
		b.spec.node.Free(b.in)
		b.spec.node.Free(b.out)
	}
}

func cutBlocks(mem []byte, n int, count, elem int64) []ccl.Block {
	blocks := make([]ccl.Block, n)
	for i := range blocks {
		blocks[i] = ccl.Block{
			Ptr:   unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), int64(i)*count*elem),
			Count: int(count),
		}
	}
	return blocks
}

func (b *benchBuffers) run(ctx context.Context) error {
	if b.spec.Coll == dtype.Send && b.spec.Rank > 1 {
		return nil
	}
	if err := b.comm.Do(ctx, &b.call); err != nil {
		return err
	}
	if b.spec.Coll == dtype.Send {
		return b.comm.Do(ctx, &b.back)
	}
	return nil
}
