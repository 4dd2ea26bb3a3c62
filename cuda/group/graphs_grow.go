package group

import (
	"errors"
	"slices"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/internal/mem"
)

// The windows have regions for some graphs. When a rank captures one for which it has none left, it
// makes memory for as many more, up to Options.Graphs in all, and passes its descriptor to the
// ranks of other processes, by a channel that they have had since they joined. These map it while
// they agree on the call, so before the rank can make any more: each of them takes one of the
// messages, which are all alike. Like to join, this may wait until what was enqueued has ended; all
// ranks have come to the same call by then.

// chunk is memory for regions that a rank has made after joining.
type chunk struct {
	at      cuda.Ptr
	memory  cuda.Memory  // in the memory of the device; or nil
	segment *mem.Segment // in memory of the host; or nil
}

// regionAt returns where a region of a rank is.
func (c *graphs) regionAt(rank, region int) cuda.Ptr {
	return c.memory[rank][region/share.RegionsOfChunk] + cuda.Ptr(region%share.RegionsOfChunk*c.regionBytes())
}

func (c *graphs) regionBytes() int {
	return share.RegionBytes(share.SlotOf(c.g.opts.Staging), len(c.pages))
}

// grow makes more regions. The context is entered.
func (c *graphs) grow() error {
	made, free, err := c.makeChunk()
	if err != nil {
		return err
	}
	t := c.g.opts.Thread
	t.sharing.Lock()
	c.cleanups = slices.Insert(c.cleanups, c.owned, free)
	c.owned++
	c.chunks = append(c.chunks, made)
	t.sharing.Unlock()
	if err := c.passOn(made); err != nil { // some may have it, and others not
		return c.g.fail(err)
	}
	c.memory[c.g.rank] = append(c.memory[c.g.rank], made.at)
	c.add(min(share.RegionsOfChunk, c.layout.Graphs-len(c.regions)))
	return nil
}

// add adds regions. All peers have left their slots.
func (c *graphs) add(regions int) {
	first := len(c.regions)
	for _, peer := range c.peers {
		for region := range regions {
			for slot := range plan.WindowSlots {
				c.page.Store(c.layout.Gone(peer, first+region, slot), 1)
			}
		}
	}
	c.using.Lock()
	c.regions = append(c.regions, make([]region, regions)...)
	c.using.Unlock()
}

func (c *graphs) makeChunk() (made chunk, free func() error, err error) {
	ctx, bytes := c.g.ctx, share.RegionsOfChunk*c.regionBytes()
	err = cuda.WithContext(ctx, func() error {
		if c.kind == route.OnDevice {
			memory, err := ctx.Alloc(bytes)
			if err == nil {
				made, free = chunk{at: memory.Ptr(), memory: memory}, memory.Free
			}
			return err
		}
		segment, err := mem.NewSegment("goccl-graphs", bytes)
		if err != nil {
			return err
		}
		made.segment = segment
		made.at, free, err = register(ctx, segment)
		return err
	})
	return made, free, err
}

// register gives the device access to memory of the host, and returns what gives back both.
func register(ctx cuda.Context, segment *mem.Segment) (at cuda.Ptr, free func() error, err error) {
	registered, err := ctx.Register(segment.Bytes())
	if err != nil {
		return 0, nil, errors.Join(err, segment.Free())
	}
	return registered.Ptr(), func() error { return errors.Join(registered.Free(), segment.Free()) }, nil
}

// passOn sends the descriptor of a chunk to the peers in other processes.
func (c *graphs) passOn(made chunk) error {
	elsewhere := 0
	for _, peer := range c.peers {
		if c.inProcess(peer) == nil {
			elsewhere++
		}
	}
	if elsewhere == 0 {
		return nil
	}
	descriptor := -1
	if made.memory == nil {
		descriptor = made.segment.FD()
	} else {
		var err error
		if descriptor, err = made.memory.Descriptor(); err != nil {
			return err
		}
		defer syscall.Close(descriptor)
	}
	for range elsewhere {
		if err := share.Pass(c.g.opts.Window.Channel, uint64(len(c.chunks)), descriptor); err != nil {
			return err
		}
	}
	if made.segment != nil {
		made.segment.CloseFD()
	}
	return nil
}

// reach maps the memory of a rank up to that of a region.
func (c *graphs) reach(rank, region int) error {
	for len(c.memory[rank]) <= region/share.RegionsOfChunk {
		at, free, err := c.mapChunk(rank, len(c.memory[rank]))
		if err != nil {
			return fault.Wrap(fault.Internal, err, "the memory that rank %d has for CUDA graphs", rank)
		}
		if free != nil {
			t := c.g.opts.Thread
			t.sharing.Lock()
			c.cleanups = append(c.cleanups, free)
			t.sharing.Unlock()
		}
		c.memory[rank] = append(c.memory[rank], at)
	}
	return nil
}

// mapChunk finds a chunk of a peer, of which it has made so many, and returns what gives it back.
func (c *graphs) mapChunk(rank, number int) (at cuda.Ptr, free func() error, err error) {
	ctx, bytes, descriptor := c.g.ctx, share.RegionsOfChunk*c.regionBytes(), -1
	if peer := c.inProcess(rank); peer != nil {
		t := c.g.opts.Thread
		t.sharing.Lock()
		var made chunk
		if number <= len(peer.chunks) {
			made = peer.chunks[number-1]
		}
		t.sharing.Unlock()
		switch {
		case made.at == 0:
			return 0, nil, fault.Peer(fault.Internal, rank, "it has not made it")
		case made.memory == nil || peer.g.ctx.Info().UUID == ctx.Info().UUID:
			return made.at, nil, nil
		}
		err = cuda.WithContext(peer.g.ctx, func() error { descriptor, err = made.memory.Descriptor(); return err })
	} else {
		descriptor, err = share.Passed(c.channels[rank], uint64(number))
	}
	if err != nil {
		return 0, nil, err
	}
	defer syscall.Close(descriptor)
	err = cuda.WithContext(ctx, func() error {
		if c.kind == route.OnDevice {
			memory, err := ctx.Import(descriptor, bytes)
			if err == nil {
				at, free = memory.Ptr(), memory.Free
			}
			return err
		}
		segment, err := mem.MapSegment(descriptor, bytes)
		if err != nil {
			return err
		}
		at, free, err = register(ctx, segment)
		return err
	})
	return at, free, err
}
