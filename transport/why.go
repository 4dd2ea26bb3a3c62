package transport

import (
	"context"
	"errors"
)

// GivenUp is the cause with which the context of a Connect ends if the peer, should it connect
// later, is to be told why this side has given up, as by Link.Leave.
type GivenUp struct{ Why []byte }

func (*GivenUp) Error() string { return "the attempt to connect was given up" }

// Why returns what the peer is to be told, or nil.
func Why(ctx context.Context) []byte {
	if g := (*GivenUp)(nil); errors.As(context.Cause(ctx), &g) {
		return g.Why
	}
	return nil
}
