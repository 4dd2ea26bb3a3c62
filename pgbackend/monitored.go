package pgbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// verdictBytes is the length of rank 0's answer to an arrival: text padded with zeros, empty if all
// ranks arrived.
const verdictBytes = 512

// MonitoredBarrier returns when all ranks have called it; otherwise its error names the missing
// ranks. Every rank reports its arrival to rank 0 and waits for rank 0's verdict. A late rank finds
// the verdict waiting. The barrier is made of messages, so the group goes on after a failure.
//
// timeout is how long rank 0 waits for the others, and the others for rank 0. A negative timeout
// means the group's own; with 0, rank 0 fails at once. With all, rank 0 waits for every rank and
// names all missing ones; without it, rank 0 stops at the first.
func (g *Group) MonitoredBarrier(timeout time.Duration, all bool) error {
	if g.place != nil {
		return g.elsewhere("monitored_barrier")
	}
	comm, err := g.joined()
	if err != nil {
		return err
	}
	if timeout < 0 {
		timeout = comm.Timeout()
	}
	b := monitored{comm: comm, number: g.monitored.Add(1) - 1, timeout: timeout, all: all}
	defer b.free()
	if comm.Rank() == 0 {
		err = b.collect()
	} else {
		err = b.report()
	}
	if err == nil { // it is made of messages, which do not compare what the ranks have called before
		err = comm.Confirm()
	}
	if f, ok := err.(*fault.Error); ok { // numbered from 1, like other operations
		return f.In(g.member(), fmt.Sprintf("monitored_barrier, seq %d", b.number+1))
	}
	return err
}

// monitored is one rank's part in one monitored barrier.
type monitored struct {
	comm    *ccl.Communicator
	number  uint64
	timeout time.Duration
	all     bool
	works   []*ccl.Work
}

// free gives back the messages, including those that no thread waits for any more. Their memory
// stays valid for as long as they need it.
func (b *monitored) free() {
	for _, w := range b.works {
		w.Free()
	}
}

// message starts a send or a receive.
func (b *monitored) message(coll dtype.Collective, peer int, part uint32, data []byte) (*ccl.Work, error) {
	call := ccl.Call{Coll: coll, Type: dtype.U8, Root: peer, Tag: monitoredTag(b.number, part), Timeout: b.timeout}
	if coll == dtype.Send {
		call.In = blockOf(data)
	} else {
		call.Out = blockOf(data)
	}
	w, err := b.comm.Start(&call)
	if err == nil {
		b.works = append(b.works, w)
	}
	return w, err
}

// exchange starts a message and waits for its end.
func (b *monitored) exchange(coll dtype.Collective, peer int, part uint32, data []byte) error {
	w, err := b.message(coll, peer, part, data)
	if err == nil {
		err = w.Wait(context.Background())
	}
	return err
}

// report is the part of every rank but rank 0.
func (b *monitored) report() error {
	verdict := make([]byte, verdictBytes)
	err := b.exchange(dtype.Send, 0, 0, make([]byte, 1))
	if err == nil {
		err = b.exchange(dtype.Recv, 0, 1, verdict)
	}
	complaint := ""
	if err != nil {
		complaint = bare(err)
		// Another process wrote the verdict: it may lack the final zero.
	} else if text, _, _ := bytes.Cut(verdict, []byte{0}); len(text) > 0 {
		complaint = string(text)
	}
	if complaint == "" {
		return nil
	}
	return fault.New(fault.Timeout,
		"Rank %d successfully reached monitoredBarrier, but received errors while waiting for send/recv from "+
			"rank 0. Please check rank 0 logs for faulty rank.\n Original exception: %s", b.comm.Rank(), complaint)
}

// collect is rank 0's part.
func (b *monitored) collect() error {
	ranks := b.comm.Size()
	var arrivals []*ccl.Work
	for r := 1; r < ranks && b.timeout > 0; r++ {
		w, err := b.message(dtype.Recv, r, 0, make([]byte, 1))
		if err != nil {
			return err
		}
		arrivals = append(arrivals, w)
	}
	var missing []string
	var why error
	for i, w := range arrivals {
		if err := w.Wait(context.Background()); err != nil {
			missing, why = append(missing, fmt.Sprint(i+1)), err
			if !b.all {
				break
			}
		}
	}
	complaint := b.complaint(missing, why, ranks)
	verdict := make([]byte, verdictBytes)
	copy(verdict[:verdictBytes-1], complaint)
	// Late ranks get the verdict too. With a complaint, it does not matter whether it can be sent.
	var answers []*ccl.Work
	for r := 1; r < ranks; r++ {
		w, err := b.message(dtype.Send, r, 1, verdict)
		if err != nil && complaint == "" {
			return err
		}
		answers = append(answers, w)
	}
	if complaint != "" {
		return fault.New(fault.Timeout, "[Rank 0]: %s", complaint)
	}
	var first error
	for _, w := range answers {
		if err := w.Wait(context.Background()); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// bare returns what an error says, without the message of the barrier that it is about.
func bare(err error) string {
	f := &fault.Error{}
	if !errors.As(err, &f) {
		return err.Error()
	}
	return f.Bare()
}

// complaint returns the text that rank 0 sends to all ranks, empty if all arrived. torch's own
// tests look for these words.
func (b *monitored) complaint(missing []string, why error, ranks int) string {
	ms := b.timeout.Milliseconds()
	switch {
	case len(missing) > 0:
		who, only := "Rank ", " (the first one; wait_all_ranks=True names all)"
		if len(missing) > 1 {
			who = "Ranks "
		}
		if b.all {
			only = ""
		}
		return fmt.Sprintf("%s%s failed to pass monitoredBarrier in %d ms%s: %s",
			who, strings.Join(missing, ", "), ms, only, bare(why))
	case b.timeout <= 0 && ranks > 1:
		return fmt.Sprintf(
			"Rank 0 timed out in monitoredBarrier after %d ms. No ranks successfully processed in monitoredBarrier.",
			ms)
	}
	return ""
}
