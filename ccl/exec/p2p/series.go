package p2p

import "github.com/goccl/goccl/transport"

// channel is what the engine needs of a transport's channel: the fragments of a message are a series, of which only the end may wake the
// peer, because that costs a fence each time.
type channel interface {
	Reserve(n int) []byte
	// Publish and Consume are Commit and Release. The peer need not notice before Flush, if it sleeps.
	Publish(n int, m *transport.Meta)
	Consume()
	Flush()
	// Look is Peek; the Meta is nil if there is no fragment, and valid until Consume.
	Look() (payload []byte, m *transport.Meta)
}

// single is a channel that knows no series.
type single struct {
	transport.Channel
	meta transport.Meta
}

func (s *single) Publish(n int, m *transport.Meta) { s.Commit(n, m) }
func (s *single) Consume()                         { s.Release() }
func (s *single) Flush()                           {}

func (s *single) Look() ([]byte, *transport.Meta) {
	payload, meta, ok := s.Peek()
	if !ok {
		return nil, nil
	}
	s.meta = meta
	return payload, &s.meta
}

func channelOf(c transport.Channel) channel {
	if series, ok := c.(channel); ok {
		return series
	}
	return &single{Channel: c}
}
