package ccl

import (
	"context"
	"errors"
	"sync"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/transport"
)

// parley is how processes talk that change a group: in control messages, over links of their own,
// since those of the group may have ended. Texts may be longer than a message.
type parley struct {
	e       *Endpoint // of this process, with its number among them
	peers   []address
	fabrics []transport.Fabric // by peer; nil for none
	session [16]byte
	key     [32]byte
	without map[int]bool // they are told nothing but the reason of the end
	former  int          // the peers from this one on come to the group: what they say ends their own part only

	mu       sync.Mutex
	links    []transport.Link
	echoes   []transport.Link // by which ranks that may have gone on without this one say that they have
	inbox    []letter
	parts    [][]byte       // by peer: of a text, what has come of it
	failed   []*fault.Error // by peer: it is lost
	proven   []bool         // by peer: it is dead
	broken   *fault.Error   // this rank cannot go on
	unsent   [][][]byte     // by peer: messages that its link has not taken yet
	over     bool
	lastWord func(peer int) []byte // once it is over: why, for each peer
	wake     chan struct{}         // holds one token after a change
	making   sync.WaitGroup
	cancel   context.CancelCauseFunc
}

// letter is a text of a peer.
type letter struct {
	from int
	text []byte
}

const (
	// The first byte of a message says whether the text goes on in the next one.
	lastPart = 0
	onePart  = 1

	mostText = 32 << 20 // bytes of a text
)

func newParley(e *Endpoint, peers []address, fabrics []transport.Fabric, session [16]byte, key [32]byte) *parley {
	n := len(peers)
	return &parley{e: e, peers: peers, fabrics: fabrics, session: session, key: key, without: map[int]bool{}, former: n,
		links: make([]transport.Link, n), parts: make([][]byte, n), failed: make([]*fault.Error, n),
		proven: make([]bool, n), unsent: make([][][]byte, n), wake: make(chan struct{}, 1)}
}

func (p *parley) self() int { return p.e.cfg.Rank }

// connect makes the links. Who does not reach this rank is lost. It returns what ends with them.
func (p *parley) connect() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	p.cancel = cancel
	for peer, fabric := range p.fabrics {
		if fabric == nil {
			continue
		}
		p.making.Go(func() {
			link, err := fabric.Connect(ctx, p.peers[peer].Fabrics[fabric.Name()], transport.Session{
				ID: p.session, Rank: p.self(), Peer: peer, Channels: 1, Key: p.key,
				OnUse:   true, // both sides dial, and so learn that nobody listens
				Control: func(message []byte) { p.hear(peer, message) }})
			p.mu.Lock()
			defer p.mu.Unlock()
			switch f := (&fault.Error{}); {
			case err == nil && p.over: // its peer waits for a word, too
				link.Leave(p.lastWord(peer))
			case err == nil:
				p.links[peer] = link
			case ctx.Err() != nil: // it is over
			case errors.As(err, &f) && (f.Code == fault.PeerLost || f.Code == fault.PeerLeft):
				p.lose(peer, f)
			case p.without[peer]:
			default:
				if !errors.As(err, &f) {
					f = fault.Wrap(fault.System, err, "connecting with rank %d", peer)
				}
				if peer < p.former {
					p.broken = f
				} else {
					p.lose(peer, f)
				}
			}
			p.notify()
		})
	}
	return ctx
}

// hear takes a message. A goroutine of a transport calls it.
func (p *parley) hear(peer int, message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(message) == 0 {
		return
	}
	p.parts[peer] = append(p.parts[peer], message[1:]...)
	switch {
	case len(p.parts[peer]) > mostText, len(p.inbox) > 64*len(p.links): // more than any agreement has
		p.parts[peer] = nil
		p.lose(peer, fault.Peer(fault.Internal, peer, "it has said more than there is to say"))
	case message[0] == lastPart:
		p.inbox = append(p.inbox, letter{peer, p.parts[peer]})
		p.parts[peer] = nil
	}
	p.notify()
}

// notify wakes who waits for a change. The lock is held.
func (p *parley) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// letters returns what has come.
func (p *parley) letters() []letter {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.inbox
	p.inbox = nil
	return all
}

// lose notes that a peer is lost. The lock is held.
func (p *parley) lose(peer int, f *fault.Error) {
	p.proven[peer] = p.proven[peer] || f.Dead
	if p.failed[peer] != nil {
		return
	}
	p.failed[peer] = f
	if peer >= p.former || p.take(f) {
		return
	}
	report, err := fault.ParseReport(f.Left, p.self(), len(p.links))
	if err == nil && report.Code == fault.Mismatch && p.broken == nil && !p.without[peer] {
		p.broken = report // what is not the same there is not the same here: nobody goes on
	}
}

// take looks whether an error says that others went on without this rank. The lock is held.
func (p *parley) take(err error) bool {
	f := &fault.Error{}
	if !errors.As(err, &f) {
		return false
	}
	by := leftOutBy(f.Left, len(p.links))
	if by != nil {
		p.broken = by
	}
	return by != nil
}

// failures returns which peers are lost, and why this rank cannot go on, if so. A link that reports
// it brings no more messages; one that the peer has left in order, after it was done, does.
func (p *parley) failures() (lost []bool, broken *fault.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = make([]bool, len(p.links))
	for _, link := range p.echoes {
		p.take(link.Err())
	}
	for peer, link := range p.links {
		if link != nil && p.failed[peer] == nil {
			f := &fault.Error{}
			if err := link.Err(); errors.As(err, &f) && (f.Code != fault.PeerLeft || len(f.Left) > 0) {
				p.lose(peer, f)
			}
		}
		lost[peer] = p.failed[peer] != nil && len(p.inbox) == 0
	}
	return lost, p.broken
}

// why returns why a peer is lost, or nil.
func (p *parley) why(peer int) *fault.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[peer]
}

// tell sends a text to a peer.
func (p *parley) tell(peer int, text []byte) { p.queue([]int{peer}, text) }

// tellAll sends a text to all peers.
func (p *parley) tellAll(text []byte) {
	all := make([]int, 0, len(p.links))
	for peer := range p.links {
		if peer != p.self() {
			all = append(all, peer)
		}
	}
	p.queue(all, text)
}

func (p *parley) queue(peers []int, text []byte) {
	var messages [][]byte
	for {
		part := text[:min(len(text), transport.MaxControl-1)]
		text = text[len(part):]
		first := byte(onePart)
		if len(text) == 0 {
			first = lastPart
		}
		if messages = append(messages, append([]byte{first}, part...)); len(text) == 0 {
			break
		}
	}
	p.mu.Lock()
	for _, peer := range peers {
		p.unsent[peer] = append(p.unsent[peer], messages...)
	}
	p.mu.Unlock()
	p.flush()
}

// flush tells the peers that take part what they have not been told yet. To others nothing is told:
// it would have to wait for them when the links are closed.
func (p *parley) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, link := range p.echoes {
		link.Open()
	}
	for peer, link := range p.links {
		if link == nil || !link.Open() {
			continue
		}
		for !p.without[peer] && len(p.unsent[peer]) > 0 && link.Tell(p.unsent[peer][0]) {
			p.unsent[peer] = p.unsent[peer][1:]
		}
	}
}

// sent reports whether the links of all that have not left have taken everything.
func (p *parley) sent() bool {
	p.flush()
	p.mu.Lock()
	defer p.mu.Unlock()
	for peer, link := range p.links {
		left := p.failed[peer] != nil || link != nil && link.Err() != nil
		if len(p.unsent[peer]) > 0 && !left && !p.without[peer] {
			return false
		}
	}
	return true
}

// poll moves what waits for a thread.
func (p *parley) poll() {
	for _, fabric := range p.e.fabrics {
		if poller, ok := fabric.(transport.Poller); ok {
			poller.Poll()
		}
	}
	p.flush()
}

// end closes the links, and tells each peer why. Those that have not come, and come later, are told
// what the late ones are told.
func (p *parley) end(late []byte, why func(peer int) []byte) {
	p.cancel(&transport.GivenUp{Why: late}) // ends the attempts to connect with ranks that have not come
	p.mu.Lock()
	p.over, p.lastWord = true, why
	closeLinks(p.echoes)
	for peer, link := range p.links {
		if link != nil {
			link.Leave(why(peer))
		}
	}
	p.mu.Unlock()
	p.making.Wait()
}
