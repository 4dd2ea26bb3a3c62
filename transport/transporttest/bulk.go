package transporttest

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/goccl/goccl/transport"
)

const (
	bulkBytes    = 6 << 20 // in each direction of each channel
	bulkChannels = 2
)

// stream is one direction of one channel: its bytes, sizes and hash follow from the seed.
type stream struct {
	random *rand.Rand
	source *rand.ChaCha8
	bytes  int
	sum    uint32
	frames uint64
	want   int  // bytes left of the message that is being sent
	series bool // fragments sent or received in one go form a series
}

func newStream(seed byte, series bool) *stream {
	return &stream{random: rand.New(rand.NewPCG(uint64(seed), 7)), source: rand.NewChaCha8([32]byte{seed}),
		series: series}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// advance sends as much of the stream as credit allows. The Meta carries the number of the
// fragment.
func (s *stream) advance(ch transport.Channel) error {
	send := put
	if s.series {
		send = publish
		defer ch.Flush()
	}
	for s.bytes < bulkBytes {
		if s.want == 0 {
			s.want = 1 + s.random.IntN([]int{32, 3000, 60000, 400000}[s.random.IntN(4)])
			s.want = min(s.want, bulkBytes-s.bytes)
		}
		n, err := send(ch, s.want, func(b []byte) {
			s.source.Read(b)
			s.sum = crc32.Update(s.sum, castagnoli, b)
		}, transport.Meta{s.frames, 0, ^uint64(0)})
		if n < 0 || err != nil {
			return err
		}
		s.want -= n
		s.bytes += n
		s.frames++
	}
	return nil
}

func (s *stream) receive(ch transport.Channel) error {
	get := take
	if s.series {
		get = consume
		defer ch.Flush()
	}
	for s.bytes < bulkBytes {
		ok, err := get(ch, func(b []byte, m transport.Meta) error {
			if m != (transport.Meta{s.frames, 0, ^uint64(0)}) {
				return fmt.Errorf("meta %x arrived as fragment %d", m, s.frames)
			}
			s.frames++
			s.bytes += len(b)
			s.sum = crc32.Update(s.sum, castagnoli, b)
			return nil
		})
		if !ok || err != nil {
			return err
		}
	}
	return nil
}

// testBulk sends both ways on several channels at once, on one of them in series, with one
// goroutine for each end of each channel.
func testBulk(t *testing.T, p *pair) {
	j := p.join(t, bulkChannels)
	defer j.close()
	type result struct {
		out, in *stream
		err     error
	}
	var results [2][bulkChannels]result
	done := make(chan struct{}, 2*bulkChannels)
	for k, end := range []struct {
		side *side
		link transport.Link
	}{{p.a, j.a}, {p.b, j.b}} {
		for c := range bulkChannels {
			r, ch := &results[k][c], end.link.Channel(c)
			r.out, r.in = newStream(byte(10*k+c), c == 1), newStream(0, c == 1)
			go func() {
				var failed error
				r.err = end.side.await("bulk transfer makes no progress", func() bool {
					err1, err2 := r.out.advance(ch), r.in.receive(ch)
					if err := end.link.Err(); err1 != nil || err2 != nil || err != nil {
						failed = fmt.Errorf("send: %v, receive: %v, link: %v", err1, err2, err)
					}
					return failed != nil || r.out.bytes == bulkBytes && r.in.bytes == bulkBytes
				})
				if failed != nil {
					r.err = failed
				}
				done <- struct{}{}
			}()
		}
	}
	for range 2 * bulkChannels {
		<-done
	}
	for k := range results {
		for c := range bulkChannels {
			r, peer := &results[k][c], &results[1-k][c]
			if r.err != nil {
				t.Fatalf("side %d channel %d: %v (out %d, in %d of %d bytes)",
					k, c, r.err, r.out.bytes, r.in.bytes, bulkBytes)
			}
			if r.in.sum != peer.out.sum || r.in.frames != peer.out.frames {
				t.Errorf("side %d channel %d: received %d fragments, hash %x; %d were sent, hash %x",
					k, c, r.in.frames, r.in.sum, peer.out.frames, peer.out.sum)
			}
		}
	}
}
