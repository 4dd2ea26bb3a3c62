package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/goccl/goccl/ccl/member"
)

// Client is a connection to a store. It is not safe for concurrent use.
type Client struct {
	conn   net.Conn
	wire   *stream
	prefix string
}

// Times.
const (
	firstPause = 5 * time.Millisecond // between attempts to connect; each is twice as long as the one before
	lastPause  = 500 * time.Millisecond
	lastWords  = time.Second     // for requests when the context has ended
	lastVisit  = 5 * time.Second // when the time is over: for the verdict, and for the others to read it
	atOnce     = 256             // values, of some KiB each, that one request reads
)

// Dial connects with the store at an address, and tries again until ctx ends, since the process
// that serves it may come later. All keys get the prefix.
func Dial(ctx context.Context, address, prefix string) (*Client, error) {
	var dialer net.Dialer
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			c := &Client{conn: conn, wire: newStream(conn), prefix: prefix}
			c.wire.writeByte(byte(validate))
			c.wire.write(binary.LittleEndian.AppendUint32(nil, magic))
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the store at %s, over which the ranks meet, cannot be reached: %w", address, err)
		case <-time.After(pause):
		}
	}
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// carryOut does what a meeting asks for.
func (c *Client) carryOut(r member.Request) (a member.Answer, err error) {
	w := c.wire
	keys := make([]string, len(r.Keys))
	for i, key := range r.Keys {
		keys[i] = c.prefix + key
	}
	switch r.Op {
	case member.Add:
		w.writeByte(byte(add))
		w.writeBytes([]byte(keys[0]))
		w.writeNumber(uint64(r.Number))
		w.flush()
		a.Number = int64(w.readNumber())
	case member.Set:
		w.writeByte(byte(set))
		w.writeBytes([]byte(keys[0]))
		w.writeBytes(r.Value)
		w.flush()
	case member.Swap:
		w.writeByte(byte(compareSet))
		w.writeBytes([]byte(keys[0]))
		w.writeBytes(nil)
		w.writeBytes(r.Value)
		w.flush()
		a.Values = [][]byte{w.readBytes(mostValue)}
	case member.Check:
		w.writeByte(byte(check))
		w.writeKeys(keys)
		w.flush()
		if w.readByte() == ready {
			a.Number = 1
		}
	case member.Read:
		for len(keys) > 0 {
			n := min(len(keys), atOnce)
			w.writeByte(byte(multiGet))
			w.writeKeys(keys[:n])
			w.flush()
			for range n {
				a.Values = append(a.Values, w.readBytes(mostValue))
			}
			keys = keys[n:]
		}
	default:
		w.fail("a meeting asks for %d", r.Op)
	}
	return a, w.err
}
