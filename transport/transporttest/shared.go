package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport"
	"golang.org/x/sys/unix"
)

const (
	sharedBytes = 4096
	sharedName  = "goccl-test-share"
)

// sharing is the memory that the sides share in a test, and the descriptors of this process when it
// began.
type sharing struct {
	all    []*mem.Segment
	before int
}

// sharing makes memory to share. A link that stays open keeps what the processes have for each
// other, so that only what a test leaves open is counted.
func (p *pair) sharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{}
	for range 2 * transport.MaxShare {
		segment, err := mem.NewSegment(sharedName, sharedBytes)
		if errors.Is(err, fault.NotSupported) {
			t.Skip("this system has no memory with descriptors")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { segment.Free() })
		s.all = append(s.all, segment)
	}
	j := p.join(t, 1)
	t.Cleanup(j.close)
	p.send(t, j.a.Channel(0), 1, 1)
	p.expect(t, j.b.Channel(0), 1, 1)
	s.before, _ = descriptorsNow(t)
	return s
}

// descriptorsNow counts the descriptors of this process, and those of memory to share.
func descriptorsNow(t *testing.T) (all, shared int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.Contains(to, "memfd:"+sharedName) {
			shared++
		}
	}
	return len(fds), shared
}

// over checks that nothing is open any more but what was before. A network may make one more
// connection meanwhile.
func (s *sharing) over(t *testing.T, p *pair) {
	t.Helper()
	p.until(t, "descriptors stay open", func() bool {
		all, shared := descriptorsNow(t)
		return shared == len(s.all) && (all <= s.before || !p.a.fabric.SharesMemory())
	})
}

// open checks how many copies of shared descriptors are open.
func (s *sharing) open(t *testing.T, copies int) {
	t.Helper()
	if _, shared := descriptorsNow(t); shared != len(s.all)+copies {
		t.Fatalf("%d copies of shared descriptors are open, want %d", shared-len(s.all), copies)
	}
}

// of returns the descriptors of n segments, the first ones or the last ones.
func (s *sharing) of(n int, last bool) (segments []*mem.Segment, fds []int) {
	segments = s.all[:n]
	if last {
		segments = s.all[len(s.all)-n:]
	}
	for _, each := range segments {
		fds = append(fds, each.FD())
	}
	return segments, fds
}

// sharedBy returns what a link has brought; nothing if it is no Lender.
func sharedBy(l transport.Link) (note []byte, fds []int) {
	if s, ok := l.(transport.Lender); ok {
		return s.Shared()
	}
	return nil, nil
}

func note(n int, fill byte) []byte { return bytes.Repeat([]byte{fill}, n) }

// isCopy checks that a descriptor is another one of the same memory, and closes it.
func isCopy(fd int, of *mem.Segment, seed uint64) error {
	defer unix.Close(fd)
	if fd == of.FD() {
		return fmt.Errorf("descriptor %d is not a copy", fd)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		return fmt.Errorf("descriptor %d is not close-on-exec (%v)", fd, err)
	}
	seen, err := mem.MapSegment(fd, sharedBytes)
	if err != nil {
		return err
	}
	defer seen.Free()
	pattern(seed)(of.Bytes())
	if err := checkPattern(seen.Bytes(), seed); err != nil {
		return fmt.Errorf("the owner writes, and the peer does not see it: %w", err)
	}
	pattern(seed + 1)(seen.Bytes())
	return checkPattern(of.Bytes(), seed+1)
}

// testShared shares all numbers of descriptors, with notes of all sizes. If the ranks share no
// memory, nothing arrives, and the rest must still work.
func testShared(t *testing.T, p *pair) {
	s := p.sharing(t)
	notes := []int{0, 1, 17, 50, 100, transport.MaxNote} // MaxShare + 1 of them
	for na := range transport.MaxShare + 1 {
		for nb := range transport.MaxShare + 1 {
			sa, sb := p.newSession(1)
			var ofA, ofB []*mem.Segment
			ofA, sa.Share = s.of(na, false)
			ofB, sb.Share = s.of(nb, true)
			sa.Note, sb.Note = note(notes[na], 'a'), note(notes[len(notes)-1-nb], 'b')
			wantA, wantB := bytes.Clone(sa.Note), bytes.Clone(sb.Note)
			j := p.joinAs(t, sa, sb)
			clear(sa.Note) // the caller's again
			clear(sb.Note)
			if p.a.fabric.SharesMemory() {
				s.open(t, na+nb)
			}
			for _, d := range []struct {
				link transport.Link
				note []byte
				of   []*mem.Segment
			}{{j.a, wantB, ofB}, {j.b, wantA, ofA}} {
				got, fds := sharedBy(d.link)
				if !p.a.fabric.SharesMemory() {
					if len(got) > 0 || len(fds) > 0 {
						t.Fatalf("note %q and %d descriptors by a fabric that shares no memory", got, len(fds))
					}
					continue
				}
				if !bytes.Equal(got, d.note) || len(fds) != len(d.of) {
					t.Fatalf("note %q and %d descriptors, want %q and %d", got, len(fds), d.note, len(d.of))
				}
				for i, fd := range fds {
					if err := isCopy(fd, d.of[i], uint64(fd)); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.open(t, 0)
			p.send(t, j.a.Channel(0), 100, 7)
			p.expect(t, j.b.Channel(0), 100, 7)
			j.close()
		}
	}
	s.over(t, p)
}

// testSharedOnce checks to whom the descriptors belong: to the first who asks, to the link if
// nobody does.
func testSharedOnce(t *testing.T, p *pair) {
	s := p.sharing(t)
	if !p.a.fabric.SharesMemory() {
		return
	}
	for round, closes := range []func(joined){
		func(j joined) { j.close() },
		func(j joined) { j.b.Close(); j.a.Close(); j.a.Close() },
		func(j joined) { j.a.Leave([]byte("why")); j.b.Close() },
	} {
		sa, sb := p.newSession(1)
		_, sa.Share = s.of(2, false)
		_, sb.Share = s.of(1, true)
		sa.Note = note(3, 'a')
		j := p.joinAs(t, sa, sb)
		if round == 1 { // fragments that nobody reads keep the path
			p.send(t, j.a.Channel(0), 100000, 1)
			p.send(t, j.b.Channel(0), 100000, 1)
		}
		_, fds := sharedBy(j.b)
		if got, more := sharedBy(j.b); string(got) != "aaa" || len(fds) != 2 || len(more) != 0 {
			t.Fatalf("asked twice: %d descriptors, then %q and %d", len(fds), got, len(more))
		}
		s.open(t, 3)
		closes(j)
		s.open(t, 2) // those that were handed over
		if _, fds := sharedBy(j.a); len(fds) != 0 {
			t.Fatal("descriptors of a closed link")
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		s.over(t, p)
	}
	// The fabric closes links that nobody has closed.
	sa, sb := p.newSession(1)
	_, sa.Share = s.of(2, false)
	_, sb.Share = s.of(2, true)
	p.joinAs(t, sa, sb)
	s.open(t, 4)
	p.a.fabric.Close()
	p.b.fabric.Close()
	s.over(t, p)
}

// testSharedInVain shares with ranks that do not come, come late, or cannot be joined.
func testSharedInVain(t *testing.T, p *pair) {
	s := p.sharing(t)
	if !p.a.fabric.SharesMemory() {
		return
	}
	attempt := func(from, to *side, one transport.Session, span time.Duration) <-chan connected {
		ctx, cancel := context.WithTimeout(context.Background(), span)
		t.Cleanup(cancel)
		return dial(ctx, from, to, one)
	}
	const short = 30 * time.Millisecond
	for _, d := range []struct{ from, to *side }{{p.a, p.b}, {p.b, p.a}} {
		sa, sb := p.newSession(1)
		_, sa.Share = s.of(2, false)
		_, sb.Share = s.of(1, true)
		if c := p.collect(attempt(d.from, d.to, sa, short)); c.err == nil {
			t.Fatal("connected to a peer that never called Connect")
		}
		s.over(t, p)
		// The same session, with one more attempt that finds its peer.
		first, second := attempt(d.from, d.to, sa, hang), attempt(d.to, d.from, sb, hang)
		for _, c := range []connected{p.collect(first), p.collect(second)} {
			if c.err != nil {
				t.Fatal(c.err)
			}
			c.link.Close()
		}
		s.over(t, p)
		sa, sb = p.newSession(1)
		_, sa.Share = s.of(2, false)
		_, sb.Share = s.of(2, true)
		sb.Channels++
		first, second = attempt(d.from, d.to, sa, hang), attempt(d.to, d.from, sb, hang)
		for _, c := range []connected{p.collect(first), p.collect(second)} {
			if !errors.Is(c.err, fault.Mismatch) {
				t.Fatalf("links of 1 and 2 channels: %v", c.err)
			}
		}
		s.over(t, p)
	}
}

// testSharedTooMuch shares what cannot be shared. It must be refused before anything is sent, and
// other links go on.
func testSharedTooMuch(t *testing.T, p *pair) {
	s := p.sharing(t)
	if !p.a.fabric.SharesMemory() {
		return
	}
	other := p.join(t, 1)
	defer other.close()
	_, fds := s.of(transport.MaxShare, false)
	for _, d := range []struct{ from, to *side }{{p.a, p.b}, {p.b, p.a}} {
		for name, change := range map[string]func(*transport.Session){
			"too many":      func(s *transport.Session) { s.Share = append(fds, fds[0]) },
			"no descriptor": func(s *transport.Session) { s.Share = []int{fds[0], -1} },
			"not open":      func(s *transport.Session) { s.Share = []int{fds[0], 1 << 30} },
			"long note":     func(s *transport.Session) { s.Note = note(transport.MaxNote+1, 'x') },
		} {
			one, _ := p.newSession(1)
			change(&one)
			ctx, cancel := context.WithTimeout(context.Background(), hang)
			c := p.collect(dial(ctx, d.from, d.to, one))
			cancel()
			if !errors.Is(c.err, fault.Invalid) {
				t.Errorf("%s: %v", name, c.err)
			}
		}
	}
	s.over(t, p)
	p.send(t, other.a.Channel(0), 100, 1)
	p.expect(t, other.b.Channel(0), 100, 1)
}
