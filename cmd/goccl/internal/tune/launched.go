package tune

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
)

// fitLaunched measures the network between the two ranks of a launcher's job, and has both write
// the costs.
func fitLaunched(spec ranks.Spec, opts ccl.Options, before *cost.File, write func(*cost.File) error) error {
	opts.Transport, opts.Timeout = "tcp", cmp.Or(opts.Timeout, time.Minute)
	ctx := context.Background()
	comm, err := ccl.Init(ctx, opts)
	if errors.Is(err, ccl.Invalid) { // no launcher has started this process
		return cli.Misuse{Err: err}
	} else if err != nil {
		return err
	}
	defer comm.Close()
	group := comm.Group()
	first, last := group.Rank(0), group.Rank(comm.Size()-1)
	if comm.Size() != 2 || first.Place.Memory() == last.Place.Memory() {
		return cli.Misused("--launched: want two ranks on two hosts; this job has %d, from %s to %s", comm.Size(), first.Host,
			last.Host)
	}
	spec.Rank = comm.Rank()
	samples, err := sampleBetween(comm, spec, opts)
	if err != nil {
		return err
	}
	var made *cost.File
	var text []byte
	if comm.Rank() == 0 {
		of := fmt.Sprintf("the network between %s and %s", first.Host, last.Host)
		if made, err = fitted(samples, true, of, before); err != nil {
			return err // the other rank is told that this one leaves
		}
		if len(group.Sites()) > 1 {
			made.Far, made.Costs.Far = made.Network, made.Costs.Network
			made.Network, made.Costs.Network = before.Network, before.Costs.Network
		}
		if text, err = json.Marshal(made); err != nil {
			return err
		}
	}
	if text, err = fromFirst(ctx, comm, text); err != nil {
		return err
	}
	if comm.Rank() == 0 {
		return write(made)
	}
	theirs := new(cost.File)
	if err := json.Unmarshal(text, theirs); err != nil {
		return err
	}
	mine := *before // what this host has measured of itself stays
	if len(group.Sites()) > 1 {
		mine.Far, mine.Costs.Far = theirs.Far, theirs.Costs.Far
	} else {
		mine.Network, mine.Costs.Network = theirs.Network, theirs.Costs.Network
	}
	return write(&mine)
}

// sampleBetween measures what sample measures, between the ranks of comm. Rank 0 gets the samples.
func sampleBetween(comm *ccl.Communicator, spec ranks.Spec, opts ccl.Options) (samples []measured.Sample, err error) {
	ping := pings(spec)
	err = ranks.Measure(comm, &ping, func(r ranks.Row) { samples = append(samples, pingSample(r)) })
	if err != nil {
		return nil, err
	}
	spec.Coll, spec.InPlace, spec.Candidates = dtype.AllReduce, true, networkSamples
	comms, err := ranks.Groups(comm, candidates(&spec, opts.GroupOptions)...)
	defer func() {
		for _, c := range comms {
			err = cmp.Or(err, c.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	err = compareEach(comms, &spec, func(cell *measured.Cell) {
		for i, name := range spec.Candidates {
			samples = append(samples, measured.Sample{Coll: spec.Coll, Algorithm: name, Bytes: cell.Bytes,
				Calls: cell.Turns[i], Blocks: cell.Times[i]})
		}
	})
	return samples, err
}

// fromFirst returns the text of rank 0 on all ranks.
func fromFirst(ctx context.Context, comm *ccl.Communicator, text []byte) ([]byte, error) {
	length := []int64{int64(len(text))}
	if err := ccl.Broadcast(ctx, comm, length, 0); err != nil {
		return nil, err
	}
	if comm.Rank() != 0 {
		text = make([]byte, length[0])
	}
	return text, ccl.Broadcast(ctx, comm, text, 0)
}
