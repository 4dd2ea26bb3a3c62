package ccl

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// invite is what Communicator.Address says.
type invite struct {
	Group string
	Doors [][]byte // addresses of TCP of some ranks
}

const (
	invitePrefix = "goccl-join-1:"
	mostDoors    = 8
	knockPause   = 50 * time.Millisecond
)

// Address returns the text that a new process gives to Node.Join, to join this group when it grows.
// It leads to some ranks of the group, this one first; the death of one does no harm. It is a
// secret, as a store's contents are: whoever has it, and that of NodeOptions.SecretFile, can join.
// It holds for smaller and larger groups that are made of this one, as long as one of these ranks
// is there.
func (c *Communicator) Address() (string, error) {
	e := c.origin.endpoint
	if _, err := c.node.doorOf(e); err != nil {
		return "", e.in("address", err)
	}
	i := invite{Group: e.cfg.Name}
	n := len(c.origin.addresses)
	for at := 0; at < n && len(i.Doors) < mostDoors; at++ {
		a, err := parseOffer(c.origin.addresses[(e.cfg.Rank+at)%n])
		if err == nil && a.Fabrics["tcp"] != nil {
			i.Doors = append(i.Doors, a.Fabrics["tcp"])
		}
	}
	text, err := json.Marshal(i)
	if err != nil {
		return "", e.in("address", fault.Wrap(fault.Internal, err, "address"))
	}
	return invitePrefix + base64.RawURLEncoding.EncodeToString(text), nil
}

func parseInvite(text string) (*invite, error) {
	i := &invite{}
	coded, ok := strings.CutPrefix(strings.TrimSpace(text), invitePrefix)
	raw, err := base64.RawURLEncoding.DecodeString(coded)
	if !ok || err != nil || json.Unmarshal(raw, i) != nil || len(i.Doors) == 0 || len(i.Doors) > mostDoors {
		return nil, fault.New(fault.Invalid, "%.40q is not the address of a running group", text)
	}
	return i, nil
}

// parseOffer reads the address of an Endpoint, which is not checked yet.
func parseOffer(text []byte) (*address, error) {
	a := &address{}
	if len(text) > MaxAddress {
		return nil, fault.New(fault.Invalid, "it has %d bytes, the limit is %d", len(text), MaxAddress)
	}
	return a, json.Unmarshal(text, a)
}

// Join makes this process a rank of a running group, when that group grows (Communicator.Grow).
// address is what Communicator.Address has said at one of its ranks. cfg says nothing of ranks and
// sizes, and its options are those of the group. Join waits for a call of Grow, and if that call
// fails because others die, for the next one, until ctx ends.
func (n *Node) Join(ctx context.Context, cfg Config, address string) (*Communicator, error) {
	i, err := parseInvite(address)
	if err != nil {
		return nil, err
	}
	cfg.Name, cfg.Rank, cfg.Size, cfg.Share, cfg.Note = i.Group, 0, 1, nil, nil
	e, err := n.Open(cfg)
	if err != nil {
		return nil, err
	}
	door, err := n.doorOf(e)
	if err != nil {
		return nil, e.newcomer(err)
	}
	v := &newcomer{e: e, door: door, doors: i.Doors}
	for {
		c, err := v.round(ctx)
		switch {
		case err == nil:
			return c, nil
		case v.final:
			return nil, e.newcomer(err)
		}
		select {
		case <-time.After(knockPause):
		case <-ctx.Done():
			return nil, e.newcomer(&fault.Error{Code: fault.Timeout, Peer: fault.NoPeer,
				Text: "did not get into the group in time: " + v.last, Cause: context.Cause(ctx)})
		}
	}
}

// newcomer names in an error the process that wants to join.
func (e *Endpoint) newcomer(err error) error {
	f := &fault.Error{}
	if !errors.As(err, &f) {
		f = fault.Wrap(fault.System, err, "joining")
	}
	return f.In(fault.NewcomerLabel(e.cfg.Name), "join")
}

// newcomer is a call of Node.Join.
type newcomer struct {
	e     *Endpoint
	door  transport.Door
	doors [][]byte
	last  string // what was in the way, so far
	final bool   // it stays so
}

// round knocks at one rank after another.
func (v *newcomer) round(ctx context.Context) (*Communicator, error) {
	var err error
	for _, at := range v.doors {
		var nc net.Conn
		if nc, err = v.door.Knock(ctx, at); err != nil {
			v.final = errors.Is(err, fault.Mismatch) || errors.Is(err, fault.Invalid)
			if v.note(ctx, err); v.final {
				return nil, err
			}
			continue
		}
		i := &invitation{}
		if i, err = v.ask(ctx, nc); err != nil {
			if ctx.Err() != nil {
				v.last = "the group's ranks have not called grow, or have taken others"
				return nil, err
			}
			v.note(ctx, err)
			continue
		}
		if i.Refused != "" {
			v.final = true
			return nil, fault.New(fault.Mismatch, "the group refuses it: %s", i.Refused)
		}
		c, err := v.enter(ctx, i)
		if err != nil {
			v.final = !errors.Is(err, fault.PeerLost) && !errors.Is(err, fault.PeerLeft) && ctx.Err() == nil
			v.note(ctx, err)
		}
		return c, err
	}
	return nil, err
}

func (v *newcomer) note(ctx context.Context, err error) {
	if ctx.Err() == nil || v.last == "" {
		v.last = fault.Text(err)
	}
}

// ask says who this process is, and waits for the answer.
func (v *newcomer) ask(ctx context.Context, nc net.Conn) (*invitation, error) {
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	i := &invitation{}
	err := writeText(nc, request{v.e.cfg.Name, v.e.address})
	if err == nil {
		err = readText(nc, mostInvites, i)
	}
	if err != nil {
		return nil, fault.Wrap(fault.PeerLost, err, "the rank that this process has come to is gone")
	}
	if i.Refused == "" && (i.Former < 1 || i.Rank < i.Former || i.Rank >= len(i.Addresses) ||
		len(i.Addresses) > MaxRanks) {
		return nil, fault.New(fault.Internal, "an answer makes this process rank %d, behind %d of %d ranks",
			i.Rank, i.Former, len(i.Addresses))
	}
	return i, nil
}

// enter joins the group.
func (v *newcomer) enter(ctx context.Context, i *invitation) (*Communicator, error) {
	all, err := v.e.among(i.Addresses, i.Rank)
	if err != nil {
		return nil, err
	}
	if own := all.peers[i.Rank]; own.Process != v.e.node.id {
		return nil, fault.New(fault.Internal, "the group takes another process for this one")
	}
	s := all.regroup(i.Former, i.Session)
	c, _, err := s.run(ctx)
	s.failure = err
	s.end()
	if err == nil && c == nil {
		err = fault.New(fault.PeerLost, "the others go on without this process")
	}
	return c, err
}
