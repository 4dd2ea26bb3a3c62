package soak_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/internal/netlab"
	_ "github.com/goccl/goccl/internal/scratch"
)

var (
	soakTime    = flag.Duration("soak.time", 2*time.Second, "how long by each road")
	soakRoad    = flag.String("soak.road", "shm,tcp,hosts", "the roads")
	soakProfile = flag.String("soak.profile", "", "a folder for heap profiles of the ranks, after one and two thirds")

	soakSeed = flag.Uint64("soak.seed", 0, "of the calls; 0 for another one each time")
)

// The first arguments of the processes that a test starts; a spec follows.
const (
	rankArgument    = "soak-rank"
	networkArgument = "soak-network"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == rankArgument || os.Args[1] == networkArgument) {
		be := beRank
		if os.Args[1] == networkArgument {
			be = beNetwork
		}
		if err := be(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestSoak runs the ranks by each road.
func TestSoak(t *testing.T) {
	for road := range strings.SplitSeq(*soakRoad, ",") {
		t.Run(road, func(t *testing.T) {
			s := &spec{Road: road, Folder: t.TempDir(), Seed: *soakSeed, Seconds: soakTime.Seconds(),
				Profile: *soakProfile}
			if s.Seed == 0 {
				s.Seed = rand.Uint64() >> 1
			}
			t.Logf("%s for %v; again with -soak.road=%s -soak.seed=%d -soak.time=%v", road, *soakTime, road, s.Seed, *soakTime)
			switch road {
			case "shm", "tcp":
			case "hosts":
				if err := netlab.Possible(); err != nil {
					t.Skip(err)
				}
			default:
				t.Fatalf("no road %q: shm, tcp or hosts", road)
			}
			supervise(t, s)
		})
	}
}

// supervisor keeps what the ranks say.
type supervisor struct {
	t       *testing.T
	spec    *spec
	last    [ranks]*report
	samples [ranks][]*report
	over    int
	wrong   string
}

// supervise starts the ranks, listens to them until the end, and judges.
func supervise(t *testing.T, s *spec) {
	begun := time.Now()
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer from.Close()
	var processes []*exec.Cmd
	if s.Road == "hosts" {
		network := processOf(t, networkArgument, s)
		network.SysProcAttr, err = netlab.Attributes()
		require.NoError(t, err)
		network.SysProcAttr.Setpgid = false
		runtime.LockOSThread() // the network ends with the thread that started it
		defer runtime.UnlockOSThread()
		processes = append(processes, network)
	} else {
		for rank := range ranks {
			of := *s
			of.Rank = rank
			processes = append(processes, processOf(t, rankArgument, &of))
		}
	}
	for _, p := range processes {
		p.Stdout, p.Stderr = to, os.Stderr
		in, err := p.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		defer func() {
			in.Close()
			p.Process.Kill()
			p.Wait()
		}()
	}
	to.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for said := bufio.NewScanner(from); said.Scan(); {
			lines <- said.Text()
		}
	}()
	v := &supervisor{t: t, spec: s}
	v.listen(lines, begun)
	v.judge(time.Since(begun))
}

func processOf(t *testing.T, argument string, s *spec) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	return exec.Command(program, argument, string(text))
}

// silence is how long the ranks may say nothing. A rank that hangs says so before.
const silence = stuck + patience

// grace is how long ranks that are left may go on after one has failed, to say what they know.
const grace = 3 * time.Second

// listen takes what the ranks say until all are done, or one fails.
func (v *supervisor) listen(lines <-chan string, begun time.Time) {
	pause := min(30*time.Second, max(time.Second, *soakTime/10))
	next := begun.Add(pause)
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for v.over < ranks {
		select {
		case line, ok := <-lines:
			if !ok {
				v.fail("the ranks ended; %d of %d had come to their end", v.over, ranks)
				return
			}
			var r report
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				v.fail("%s", line) // of a panic, for example
				return
			}
			if r.Wrong != "" {
				v.fail("rank %d: %s", r.Rank, r.Wrong)
				quiet.Reset(grace)
				continue
			}
			if v.wrong == "" {
				quiet.Reset(silence)
			}
			if r.Over {
				v.over++
			} else {
				v.samples[r.Rank] = append(v.samples[r.Rank], &r)
			}
			v.last[r.Rank] = &r
			if now := time.Now(); now.After(next) && v.over == 0 {
				next = now.Add(pause)
				v.tell(now.Sub(begun))
			}
		case <-quiet.C:
			if v.wrong == "" {
				v.fail("HANG: the ranks say nothing for %v; the last words: %s", silence, v.phases())
			}
			return
		}
	}
}

// fail notes what is wrong; the first is mostly the cause.
func (v *supervisor) fail(format string, args ...any) {
	v.wrong += fmt.Sprintf(format, args...) + "\n"
}

func (v *supervisor) phases() string {
	var all []string
	for rank, r := range v.last {
		if r == nil {
			all = append(all, fmt.Sprintf("rank %d: none", rank))
		} else {
			all = append(all, fmt.Sprintf("rank %d: phase %d ended", rank, r.Phase))
		}
	}
	return strings.Join(all, ", ")
}

const mib = 1 << 20

// tell prints how it goes.
func (v *supervisor) tell(after time.Duration) {
	var operations, cancelled, cuts, healed uint64
	var rss, pss []string
	for _, r := range v.last {
		if r == nil {
			return
		}
		operations += r.Operations
		cancelled += r.Cancelled
		cuts += r.Cuts
		healed += r.Healed
		rss = append(rss, fmt.Sprintf("%.1f", float64(r.RSS)/mib))
		pss = append(pss, fmt.Sprintf("%.1f", float64(r.PSS)/mib))
	}
	fmt.Printf("%-5s %6.0f s: %d operations (%.0f a second), %d waits given up, %d sockets broken, %d connections made "+
		"again; RSS %s MiB, PSS %s MiB\n", v.spec.Road, after.Seconds(), operations,
		float64(operations)/after.Seconds(), cancelled, cuts, healed, strings.Join(rss, " "), strings.Join(pss, " "))
}

// judge prints the totals, and fails the test if something was wrong.
func (v *supervisor) judge(took time.Duration) {
	t := v.t
	if v.wrong != "" {
		t.Fatalf("%sseed %d: again with -soak.road=%s -soak.seed=%d -soak.time=%v",
			v.wrong, v.spec.Seed, v.spec.Road, v.spec.Seed, *soakTime)
	}
	v.tell(took)
	by := map[string]uint64{}
	total := uint64(0)
	for _, r := range v.last {
		for coll, n := range r.By {
			by[coll] += n
			total += n
		}
	}
	var counts []string
	for coll, n := range by {
		counts = append(counts, fmt.Sprintf("%s %d", coll, n))
	}
	slices.Sort(counts)
	fmt.Printf("%-5s %d calls of all ranks: %s\n", v.spec.Road, total, strings.Join(counts, ", "))
	for rank := range ranks {
		v.memory(rank, "RSS", func(r *report) int64 { return r.RSS })
		v.memory(rank, "PSS", func(r *report) int64 { return r.PSS })
		v.memory(rank, "segments", func(r *report) int64 { return r.InUse })
		v.memory(rank, "heap", func(r *report) int64 { return r.Heap })
	}
}

// Memory may grow by noise: by so much from the middle to the last third of a run. In a short run
// caches still fill.
const (
	fewSamples  = 24
	shortRun    = 5 * time.Minute
	allowed     = 4 * mib
	allowedPart = 0.05
	ofShort     = 24 * mib
	ofShortPart = 0.25
)

// memory compares the medians of the middle and the last third of a run, and prints the slope
// between them.
func (v *supervisor) memory(rank int, what string, of func(*report) int64) {
	all := v.samples[rank]
	if len(all) < fewSamples {
		if rank == 0 {
			v.t.Logf("%d phases: too few to judge memory by (%s)", len(all), what)
		}
		return
	}
	third := len(all) / 3
	middle, last := median(all[third:2*third], of), median(all[2*third:], of)
	minutes := v.spec.Seconds / 60 / 3
	v.t.Logf("rank %d: %-8s %7.2f MiB in the middle third, %7.2f in the last one: %+.1f KiB a minute", rank, what,
		float64(middle)/mib, float64(last)/mib, float64(last-middle)/1024/minutes)
	most := allowed + allowedPart*float64(middle)
	if *soakTime < shortRun {
		most = ofShort + ofShortPart*float64(middle)
	}
	if float64(last-middle) > most {
		v.t.Errorf("LEAK: rank %d: %s grew from %.2f to %.2f MiB; seed %d", rank, what,
			float64(middle)/mib, float64(last)/mib, v.spec.Seed)
	}
}

func median(of []*report, value func(*report) int64) int64 {
	var all []int64
	for _, r := range of {
		all = append(all, value(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// beNetwork is the process that makes the network of two hosts and starts the ranks, two on each.
// While the file "cuts" is in the folder, it takes interfaces down.
func beNetwork(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	n := netlab.Network{Hosts: 2, Wires: []netlab.Wire{{}}}
	if err := n.Make(); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	ended := make(chan struct{})
	for rank := range ranks {
		of := s
		of.Rank = rank
		told, err := json.Marshal(&of)
		if err != nil {
			return err
		}
		words := append(netlab.In(rank/2), program, rankArgument, string(told))
		p := exec.Command(words[0], words[1:]...)
		p.Stdout, p.Stderr = os.Stdout, os.Stderr
		if _, err := p.StdinPipe(); err != nil { // it is open as long as this process
			return err
		}
		if err := p.Start(); err != nil {
			return err
		}
		group.Go(func() { p.Wait() })
	}
	go func() { group.Wait(); close(ended) }()
	for {
		select {
		case <-ended:
			return nil
		case <-time.After(time.Duration(500+rand.IntN(2500)) * time.Millisecond):
		}
		if _, err := os.Stat(filepath.Join(s.Folder, "cuts")); err != nil {
			continue
		}
		device := []string{"-n", netlab.Host(rand.IntN(2)), "link", "set", netlab.Interface(0)}
		if err := exec.Command("ip", append(device, "down")...).Run(); err != nil {
			return err
		}
		time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond)
		if err := exec.Command("ip", append(device, "up")...).Run(); err != nil {
			return err
		}
	}
}
