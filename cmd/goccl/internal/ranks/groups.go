package ranks

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goccl/goccl/ccl"
)

// Groups makes a group of the ranks of comm for each of the options: they tell each other their
// addresses over comm.
func Groups(comm *ccl.Communicator, each ...ccl.GroupOptions) (made []*ccl.Communicator, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i, opts := range each {
		endpoint, err := comm.Node().Open(ccl.Config{Name: fmt.Sprint("tune ", i), Rank: comm.Rank(), Size: comm.Size(),
			Timeout: time.Minute, Options: opts})
		if err != nil {
			return made, err
		}
		addresses, err := gather(ctx, comm, endpoint.Address())
		if err != nil {
			return made, err
		}
		joined, err := endpoint.Join(ctx, addresses)
		if err != nil {
			return made, err
		}
		made = append(made, joined)
	}
	return made, nil
}

// gather returns the texts of all ranks.
func gather(ctx context.Context, comm *ccl.Communicator, text []byte) ([][]byte, error) {
	own := binary.LittleEndian.AppendUint32(make([]byte, 0, ccl.MaxAddress+4), uint32(len(text)))
	own = append(own, text...)[:ccl.MaxAddress+4]
	all := make([]byte, len(own)*comm.Size())
	if err := ccl.AllGather(ctx, comm, own, all); err != nil {
		return nil, err
	}
	texts := make([][]byte, comm.Size())
	for rank := range texts {
		one := all[rank*len(own):][:len(own)]
		n := binary.LittleEndian.Uint32(one)
		if n > ccl.MaxAddress {
			return nil, fmt.Errorf("rank %d has an address of %d bytes", rank, n)
		}
		texts[rank] = one[4:][:n]
	}
	return texts, nil
}
