package drill

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/netlab"
)

// What the drill holds the library to, from the fault or the rank's last call if that is later.
const (
	deathLimit = time.Second            // also of a mismatch
	quickLimit = 500 * time.Millisecond // an abort, an interrupt, a call of a group that has failed
	moreLimit  = time.Second            // beyond GOCCL_PEER_TIMEOUT or the timeout of an operation
	healLimit  = 3 * time.Second        // a round during which a path breaks
	noiseLimit = 500 * time.Millisecond // a round may take longer than it must, on a busy machine
)

// slowPause is what a slow rank does not call for.
const slowPause = 100 * time.Millisecond

// The descriptors that the child of a rank that is killed holds: all of them, or those that a
// forked child of a program that uses the library has. It closes the library's sockets
// (cabi/exports/guard.c), as otherwise the kernel would not tell other hosts of the death.
const (
	childAll       = "all"
	childUntracked = "untracked"
)

// drillFault is a row of the table of faults.
type drillFault struct {
	name, doc string
	roads     []string                         // nil: all
	applies   func(coll dtype.Collective) bool // nil: to all
	wire      bool                             // it is one of a path, and not of a rank
	deaths    int                              // how many ranks have it; 0 for one
	relay     bool                             // TCP passes through relays
	lone      bool                             // of two hosts, one has rank 0 only
	// cast changes what a rank is told, which is one round.
	cast func(s *stage, rank int, spec *drillSpec, opts *ccl.Options)
	// joining makes the fault happen while ranks join, and returns when all have ended; nil: see
	// act.
	joining func(s *stage) error
	// act makes the fault happen, after all ranks were told to begin, and returns when all have
	// ended that should.
	act func(s *stage) error
	// expects returns what a rank has to report; nil: it is not asked.
	expects func(s *stage, rank int) *expectation
	proof   func(s *stage) string // says what is missing to be sure that the fault has happened
	undo    func(s *stage)
}

// drillFaults returns all faults. The number of a fault decides which rank has it.
func drillFaults() []*drillFault {
	all := []*drillFault{
		{
			name: "kill", doc: "one rank is killed (SIGKILL) while all others wait for it",
			cast: absent, act: killWaited, expects: afterDeath,
		},
		{
			name: "kill-loop", doc: "one rank is killed somewhere within a loop of calls",
			cast: loop, act: killLooping, expects: afterDeath,
		},
		{
			name: "kill-child", doc: "the same, and a child that it has forked lives on",
			cast: func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
				loop(s, rank, spec, opts)
				if rank == s.culprit {
					spec.Child = childUntracked
					if s.cell.Road == roadShm {
						spec.Child = childAll
					}
				}
			},
			act: killLooping, expects: afterDeath,
		},
		{
			name: "stop", doc: "one rank is stopped (SIGSTOP) within a loop of calls, for longer than the timeout",
			cast: func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
				loop(s, rank, spec, opts)
				spec.Timeout = s.timeout
			},
			act: stopLong, expects: func(s *stage, rank int) *expectation {
				e := &expectation{codes: codes(fault.Timeout), culprits: []int{s.culprit},
					within: s.timeout + moreLimit, evidence: regexp.MustCompile(`does not answer; its process may be stopped`)}
				if rank == s.culprit { // it learns that it was given up
					e.within = deathLimit
				}
				return e
			},
		},
		{
			name: "stop-short", doc: "one rank is stopped for half of the timeout",
			cast: together, act: func(s *stage) error {
				return s.meanwhile(func() error {
					if err := s.signal(s.culprit, syscall.SIGSTOP); err != nil {
						return err
					}
					time.Sleep(min(stopShort, s.timeout/2))
					return s.signal(s.culprit, syscall.SIGCONT)
				})
			},
			expects: endsWell(stopShort + noiseLimit),
		},
		{
			name: "slow", doc: "one rank is late in each call, by less than the timeout",
			cast: func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
				together(s, rank, spec, opts)
				if rank == s.culprit {
					spec.Pause = min(slowPause, s.timeout/2)
				}
			},
			act:     func(s *stage) error { return s.meanwhile(func() error { return nil }) },
			expects: endsWell(slowPause + noiseLimit),
		},
		{
			name: "cut", doc: "all connections are reset; between hosts, an interface goes down for 0.2 s",
			roads: []string{roadTCP, roadHosts}, wire: true,
			cast: func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
				together(s, rank, spec, opts)
				spec.Timeout = longTimeout
			},
			act: cut, expects: endsWell(healLimit),
		},
		{
			name: "silence", doc: "the wire between two hosts drops everything (GOCCL_PEER_TIMEOUT is 2 s)",
			roads: []string{roadHosts}, wire: true,
			cast: func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
				loop(s, rank, spec, opts)
				opts.PeerTimeout = peerTimeout
			},
			act: silence, expects: func(s *stage, rank int) *expectation {
				var beyond []int
				for other := range s.cell.Ranks {
					if s.cell.host(other) != s.cell.host(rank) {
						beyond = append(beyond, other)
					}
				}
				// A message fails because of its peer only.
				return &expectation{codes: codes(fault.PeerLost), culprits: beyond, some: !s.cell.Coll.Valid(),
					within:   peerTimeout + moreLimit,
					evidence: regexp.MustCompile(`did not answer for|no new connection for|cannot connect to .* for 2s`)}
			},
			undo: func(s *stage) { command("ip", "link", "set", s.port(), "up") },
		},
		{
			name: "corrupt", doc: "one byte on a TCP connection is changed (GOCCL_CHECKSUM=1)",
			roads: []string{roadTCP, roadHosts}, wire: true, relay: true,
			cast: func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
				together(s, rank, spec, opts)
				spec.Timeout, opts.Checksum = longTimeout, true
			},
			act: corrupt, expects: endsWell(healLimit),
			proof: func(s *stage) string {
				for _, a := range s.actors {
					if strings.Contains(a.stderr.String(), "wrong checksum") {
						return ""
					}
				}
				return "no rank has warned of a wrong checksum"
			},
		},
		{
			name: "late", doc: "one rank never calls (and then does, when the others have given up)",
			cast: func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
				absent(s, rank, spec, opts)
				spec.Timeout = s.timeout
			},
			act: func(s *stage) error {
				if err := s.await(wordEnded, s.others...); err != nil {
					return err
				}
				return s.latecomer(s.culprit)
			},
			expects: func(s *stage, rank int) *expectation {
				how := fmt.Sprintf(`rank %d is in no call since seq \d+, \d+\.\d s ago`, s.culprit)
				e := &expectation{codes: codes(fault.Timeout), culprits: []int{s.culprit},
					within: s.timeout + moreLimit, evidence: regexp.MustCompile(how)}
				if rank == s.culprit {
					e.within, e.orNext = quickLimit, true
				}
				return e
			},
		},
	}
	for _, what := range []string{differSize, differType, differOp, differRoot, differCall} {
		all = append(all, mismatch(what))
	}
	all = append(all,
		&drillFault{
			name: "abort", doc: "one rank aborts the group; another one is late",
			cast: partOfCulprit(partAbort), act: func(s *stage) error {
				return s.breakOff(func() error {
					s.tell("act", s.culprit)
					return nil
				})
			},
			expects: afterAbort(regexp.MustCompile(abortReason)),
		},
		&drillFault{
			name: "interrupt", doc: "one rank gets a SIGINT, which ends the context of its call; another one is late",
			cast: partOfCulprit(partInterrupt), act: func(s *stage) error {
				return s.breakOff(func() error { return s.signal(s.culprit, os.Interrupt) })
			},
			expects: afterAbort(regexp.MustCompile(`the context of \w+ ended`)),
		},
		full(limitDescriptors, "one rank has no descriptor left when it joins", `too many open files`),
		full(limitMemory, "one rank may map 12 MiB more than it has when it begins", `memory`),
		full(limitFiles, "one rank may write no file, and so cannot make segments of shared memory", `file too large`),
		&drillFault{
			name: "kill-two", doc: "two ranks are killed at once while all others wait for them",
			deaths: 2, cast: absent, act: killWaited, expects: afterDeath,
		},
		&drillFault{
			name: "kill-three", doc: "three ranks are killed at once somewhere within a loop of calls",
			deaths: 3, cast: loop, act: killLooping, expects: afterDeath,
		},
	)
	return append(append(all, shrinkFaults()...), joiningFaults()...)
}

// fullFault is the name of the fault of a limit.
var fullFault = map[string]string{
	limitDescriptors: "full-descriptors", limitMemory: "full-memory", limitFiles: "full-shm",
}

func faultNamed(name string) *drillFault { return drillFaults()[faultIndex(name)] }

func faultIndex(name string) int {
	return slices.IndexFunc(drillFaults(), func(f *drillFault) bool { return f.name == name })
}

func codes(all ...fault.Code) (texts []string) {
	for _, code := range all {
		texts = append(texts, code.Error())
	}
	return texts
}

func absent(s *stage, rank int, spec *drillSpec, _ *ccl.Options) {
	if slices.Contains(s.culprits, rank) {
		spec.Part = partAbsent
	}
}

func loop(_ *stage, _ int, spec *drillSpec, _ *ccl.Options) { spec.Part = partLoop }

func together(s *stage, _ int, spec *drillSpec, _ *ccl.Options) {
	spec.Part, spec.Timeout = partTogether, s.timeout
}

// partOfCulprit has one rank play another part, and the next one be late.
func partOfCulprit(part string) func(s *stage, rank int, spec *drillSpec, opts *ccl.Options) {
	return func(s *stage, rank int, spec *drillSpec, _ *ccl.Options) {
		switch rank {
		case s.culprit:
			spec.Part = part
		case s.next():
			spec.Part = partAbsent
		}
	}
}

func (s *stage) next() int { return (s.culprit + 1) % s.cell.Ranks }

func (s *stage) signal(rank int, sig os.Signal) error { return s.actors[rank].cmd.Process.Signal(sig) }

func killWaited(s *stage) error {
	if err := s.await(wordCalling, s.others...); err != nil {
		return err
	}
	time.Sleep(settle)
	return s.kill()
}

func killLooping(s *stage) error {
	if err := s.somewhere(); err != nil {
		return err
	}
	return s.kill()
}

// somewhere returns at some time within the loops of all ranks.
func (s *stage) somewhere() error {
	err := s.await(wordUnderWay, s.everyone()...)
	time.Sleep(time.Duration(rand.IntN(int(5 * time.Millisecond))))
	return err
}

func (s *stage) kill() error {
	s.event = time.Now()
	for _, rank := range s.culprits {
		if err := s.signal(rank, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return s.await(wordEnded, s.others...)
}

func afterDeath(s *stage, rank int) *expectation {
	if slices.Contains(s.culprits, rank) {
		return nil
	}
	// Only on one host can a rank know how another one has ended.
	how := `killed by signal 9 \(SIGKILL\)`
	if s.cell.Road != roadShm {
		how += `|its process may have died|its process or host may have died|refuses new connections`
	}
	return &expectation{codes: codes(fault.PeerLost), culprits: s.culprits, within: deathLimit,
		evidence: regexp.MustCompile(how)}
}

func stopLong(s *stage) error {
	if err := s.somewhere(); err != nil {
		return err
	}
	s.event = time.Now()
	if err := s.signal(s.culprit, syscall.SIGSTOP); err != nil {
		return err
	}
	if err := s.await(wordEnded, s.others...); err != nil {
		return err
	}
	s.later[s.culprit] = time.Now()
	if err := s.signal(s.culprit, syscall.SIGCONT); err != nil {
		return err
	}
	return s.await(wordEnded, s.culprit)
}

// meanwhile makes a fault happen while ranks do rounds, and ends the rounds.
func (s *stage) meanwhile(happen func() error) error {
	if err := s.somewhere(); err != nil {
		return err
	}
	s.event = time.Now()
	if err := happen(); err != nil {
		return err
	}
	s.tell("stop", s.everyone()...)
	return s.await(wordEnded, s.everyone()...)
}

func endsWell(slowest time.Duration) func(*stage, int) *expectation {
	return func(*stage, int) *expectation { return &expectation{slowest: slowest} }
}

func cut(s *stage) error {
	return s.meanwhile(func() error {
		if s.cell.Road == roadHosts {
			link := []string{"ip", "-n", netlab.Host(1), "link", "set", netlab.Interface(s.lane)}
			if err := command(append(link, "down")...); err != nil {
				return err
			}
			time.Sleep(200 * time.Millisecond)
			return command(append(link, "up")...)
		}
		for _, r := range s.relays {
			if n, err := r.ask("reset"); err != nil || n == 0 {
				return fmt.Errorf("the relay has reset %d connections: %v", n, err)
			}
		}
		return nil
	})
}

func corrupt(s *stage) error {
	return s.meanwhile(func() error {
		flipped := make(chan error, len(s.relays))
		for _, r := range s.relays { // between hosts it depends on who has dialled, which of them has connections
			go func() {
				_, err := r.ask("flip")
				flipped <- err
			}()
		}
		select {
		case err := <-flipped:
			return err
		case <-time.After(time.Until(s.deadline)):
			return fmt.Errorf("HANG: nothing passes the relays")
		}
	})
}

// port returns the other end of the interface of host 1.
func (s *stage) port() string { return fmt.Sprintf("port%d.1", s.lane) }

func silence(s *stage) error {
	if err := s.somewhere(); err != nil {
		return err
	}
	s.event = time.Now()
	if err := command("ip", "link", "set", s.port(), "down"); err != nil {
		return err
	}
	return s.await(wordEnded, s.everyone()...)
}

// latecomer has a rank make the call that it has not made so far.
func (s *stage) latecomer(rank int) error {
	s.later[rank] = time.Now()
	s.tell("call", rank)
	return s.await(wordEnded, rank)
}

// breakOff makes one rank break off while all others wait, except for one that is late.
func (s *stage) breakOff(happen func() error) error {
	var waiting []int
	for rank := range s.cell.Ranks {
		if rank != s.next() {
			waiting = append(waiting, rank)
		}
	}
	if err := s.await(wordCalling, waiting...); err != nil {
		return err
	}
	time.Sleep(settle)
	s.event = time.Now()
	if err := happen(); err != nil {
		return err
	}
	if err := s.await(wordEnded, waiting...); err != nil {
		return err
	}
	return s.latecomer(s.next())
}

func afterAbort(evidence *regexp.Regexp) func(*stage, int) *expectation {
	return func(s *stage, rank int) *expectation {
		e := &expectation{codes: codes(fault.Aborted), culprits: []int{s.culprit}, within: quickLimit,
			evidence: evidence, orNext: rank == s.next()}
		if rank == s.culprit {
			e.culprits = nil // it was itself
		}
		return e
	}
}

// mismatch is the fault of a rank whose call differs from that of the others.
func mismatch(what string) *drillFault {
	names := map[string]string{
		differSize: "length", differType: "element type", differOp: "operator", differRoot: "root",
		differCall: "collective",
	}
	return &drillFault{
		name: "mismatch-" + what, doc: "one rank calls with another " + names[what],
		applies: func(coll dtype.Collective) bool { return canDiffer(what, coll) },
		cast: func(s *stage, rank int, spec *drillSpec, _ *ccl.Options) {
			if rank == s.culprit {
				spec.Differs = what
			}
		},
		act: func(s *stage) error {
			if err := s.await(wordCalling, s.everyone()...); err != nil {
				return err
			}
			for _, a := range s.actors {
				if at := time.Unix(0, a.said[wordCalling].At); at.After(s.event) {
					s.event = at
				}
			}
			return s.await(wordEnded, s.everyone()...)
		},
		expects: func(s *stage, rank int) *expectation {
			e := &expectation{codes: codes(fault.Mismatch), culprits: []int{s.culprit}, within: deathLimit,
				evidence: regexp.MustCompile(`this rank called .+, rank \d+ called .+|has \d+ elements here, and rank \d+ says \d+`), anyone: rank == s.culprit}
			if s.cell.Coll.Valid() {
				return e
			}
			// Only the message fails, for its receiver, and for its sender if that still waits.
			switch rank {
			case s.next():
				e.evidence, e.lives = regexp.MustCompile(`receive of \d+ bytes .* the message has \d+ bytes`), true
			case s.culprit:
				e.evidence, e.lives, e.orWell = regexp.MustCompile(`send of \d+ bytes .* has \d+ bytes`), true, true
			default:
				return &expectation{}
			}
			return e
		},
	}
}

// full is the fault of a rank that lacks something when it joins. It must say so, or do without.
func full(limit, doc, evidence string) *drillFault {
	return &drillFault{
		name: fullFault[limit], doc: doc,
		cast: func(s *stage, rank int, spec *drillSpec, _ *ccl.Options) {
			if rank == s.culprit {
				spec.Limit = limit
			}
		},
		act: func(s *stage) error { return s.await(wordEnded, s.everyone()...) },
		expects: func(s *stage, rank int) *expectation {
			switch end := s.actors[s.culprit].said[wordEnded].End; {
			case end == nil || end.Error == nil:
				return &expectation{}
			case rank == s.culprit:
				return &expectation{codes: codes(fault.System), within: deathLimit,
					evidence: regexp.MustCompile(evidence)}
			case end.During == "open": // the others have not got an address of it
				return nil
			}
			e := &expectation{codes: codes(fault.PeerLost, fault.PeerLeft, fault.System), culprits: []int{s.culprit},
				within: deathLimit}
			if s.cell.Road == roadHosts {
				// A rank that is to be dialled by one of another host does not take it for
				// dead when that refuses connections, as firewalls do, too.
				e.codes, e.within = append(e.codes, codes(fault.Timeout)...), joinTimeout+deathLimit
			}
			return e
		},
	}
}
