package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/goccl/goccl/ccl"
)

// attendee is what a rank tells the others when they meet.
type attendee struct {
	Rank    int    `json:"rank"`
	Size    int    `json:"size"`
	Address []byte `json:"address"`
}

// meet exchanges the addresses of all ranks: rank 0 listens, all others tell it theirs and get
// those of all. Like torch's store it trusts whoever reaches the port.
func meet(ctx context.Context, at place, own []byte) ([][]byte, error) {
	addresses := make([][]byte, at.size)
	addresses[at.rank] = own
	deadline, _ := ctx.Deadline()
	if at.rank != 0 {
		return addresses, attend(ctx, at, own, &addresses)
	}
	listener, err := net.Listen("tcp", at.meeting)
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot wait for the others at %s: %w", at.meeting, err)
	}
	defer listener.Close()
	listener.(*net.TCPListener).SetDeadline(deadline)
	guests := map[int]net.Conn{}
	defer func() {
		for _, guest := range guests {
			guest.Close()
		}
	}()
	for len(guests) < at.size-1 {
		guest, err := listener.Accept()
		if err != nil {
			var missing []int
			for rank := 1; rank < at.size; rank++ {
				if guests[rank] == nil {
					missing = append(missing, rank)
				}
			}
			return nil, fmt.Errorf("ranks %v did not come to %s: %w", missing, at.meeting, err)
		}
		guest.SetDeadline(time.Now().Add(5 * time.Second))
		var a attendee
		reader := bufio.NewReaderSize(guest, 2*ccl.MaxAddress)
		line, err := reader.ReadSlice('\n')
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil || a.Size != at.size || a.Rank < 1 || a.Rank >= at.size || guests[a.Rank] != nil {
			guest.Close() // a stranger, or of another job
			continue
		}
		guests[a.Rank], addresses[a.Rank] = guest, a.Address
	}
	for rank, guest := range guests {
		guest.SetDeadline(time.Now().Add(30 * time.Second))
		if err := json.NewEncoder(guest).Encode(addresses); err != nil {
			return nil, fmt.Errorf("rank %d left while ranks met: %w", rank, err)
		}
	}
	return addresses, nil
}

// attend is the part of a rank that is not 0 in meet.
func attend(ctx context.Context, at place, own []byte, addresses *[][]byte) error {
	text, err := json.Marshal(attendee{at.rank, at.size, own})
	if err != nil {
		return err
	}
	dialer := net.Dialer{}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var conn net.Conn
		conn, err = dialer.DialContext(ctx, "tcp", at.meeting)
		if err == nil {
			deadline, _ := ctx.Deadline()
			conn.SetDeadline(deadline)
			if _, err = conn.Write(append(text, '\n')); err == nil {
				err = json.NewDecoder(conn).Decode(addresses)
			}
			conn.Close()
			if err == nil && len(*addresses) == at.size {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("rank %d cannot meet rank 0 at %s: %v", at.rank, at.meeting, err)
		case <-time.After(pause):
		}
	}
}
