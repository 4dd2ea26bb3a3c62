package transport_test

import (
	"context"
	"fmt"

	"github.com/goccl/goccl/internal/park"
	"github.com/goccl/goccl/transport"
	"github.com/goccl/goccl/transport/inproc"
)

// Two ranks of one process: rank 0 publishes a fragment, and rank 1 reads it where it is.
func Example() {
	var fabric transport.Fabric = inproc.New(park.NewDoorbell())
	defer fabric.Close()
	connect := func(rank, peer int) transport.Link {
		session := transport.Session{Rank: rank, Peer: peer, Channels: 1}
		link, err := fabric.Connect(context.Background(), fabric.Address(), session)
		if err != nil {
			panic(err)
		}
		return link
	}
	links := make(chan transport.Link)
	go func() { links <- connect(1, 0) }()
	to, from := connect(0, 1).Channel(0), (<-links).Channel(0)

	space := to.Reserve(5)
	copy(space, "hello")
	to.Commit(len(space), &transport.Meta{7})

	payload, meta, ok := from.Peek()
	fmt.Println(meta[0], string(payload), ok)
	from.Release()
	_, _, ok = from.Peek()
	fmt.Println(ok)
	// Output:
	// 7 hello true
	// false
}
