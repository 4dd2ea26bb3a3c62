package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/park"
)

// Kept are rates that were measured some time, and kept for this user and this machine.
type Kept struct {
	Format   int        `json:"goccl_rates"`
	Measured time.Time  `json:"measured"`
	Rates    topo.Rates `json:"rates"`
	Load     float64    `json:"load"` // processes that wanted to run in the minute before, or then
}

const (
	keptFormat = 1
	mostKept   = 1 << 12               // bytes of a file
	keptFor    = 30 * 24 * time.Hour   // then they are measured again
	retryAfter = time.Minute           // a measurement that did not end
	joinSpan   = 45 * time.Millisecond // with what it takes to begin, 50 ms
)

// KeptRates returns the rates of this machine: those that were kept in the folder, or else it
// measures and keeps them. Where they cannot be kept, they are measured each time.
func KeptRates(folder string) Kept {
	o := here()
	if k, ok := o.read(folder); ok && k.Rates.Known() && !k.stale(time.Now(), load(), o.cores) {
		return k
	}
	return o.measure(folder)
}

// MeasureRates measures the rates of this machine, and keeps them in the folder.
func MeasureRates(folder string) Kept { return here().measure(folder) }

// JoiningRates returns the rates of this machine for a rank that joins: those that are kept, or,
// the first time, it measures and keeps them. It does not do so if they could not be kept, or while
// another process does, and it takes 50 ms at most: without rates it returns nil.
func JoiningRates(folder string) *topo.Rates {
	joining.Lock()
	defer joining.Unlock()
	if joining.folder != folder || joining.rates == nil {
		joining.folder, joining.rates = folder, here().join(folder)
	}
	return joining.rates
}

// joining has the rates of this process, once it knows them.
var joining struct {
	sync.Mutex
	folder string
	rates  *topo.Rates
}

// owner is whose rates are kept together. Ranks of a host that are each bound to some cores have
// the same if they have as many.
type owner struct {
	machine string // one boot of its kernel
	cores   int    // that a process uses at the same time
}

func here() owner {
	o := owner{word("/", "proc/sys/kernel/random/boot_id"), park.Cores()}
	if o.machine == "" {
		o.machine, _ = os.Hostname()
	}
	return o
}

// path returns the file of an owner: machines may share the home of a user.
func (o owner) path(folder string) string {
	sum := sha256.Sum256(fmt.Append(nil, o.machine, " ", o.cores))
	return filepath.Join(folder, "rates-"+hex.EncodeToString(sum[:6])+".json")
}

// read returns what is kept. Its rates are unknown if a measurement has not ended.
func (o owner) read(folder string) (k Kept, ok bool) {
	// Where a user has no home, the folder may be another's, and the file anything.
	file, err := os.OpenFile(o.path(folder), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return k, false
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return k, false
	}
	text, err := io.ReadAll(io.LimitReader(file, mostKept))
	ok = err == nil && json.Unmarshal(text, &k) == nil && k.Format == keptFormat &&
		(k.Rates.Known() || k.Rates == topo.Rates{})
	if !ok {
		return Kept{}, false
	}
	return k, true
}

// stale reports whether rates are to be measured again: they are old, or were measured while other
// processes used half of the cores, and there are fewer now.
func (k *Kept) stale(now time.Time, load float64, cores int) bool {
	age := now.Sub(k.Measured)
	return age < -retryAfter || age > keptFor || k.Load >= float64(cores)/2 && load < k.Load/2
}

// measure measures rates, and keeps them if it could.
func (o owner) measure(folder string) Kept {
	before := load()
	k := Kept{Format: keptFormat, Measured: time.Now().Truncate(time.Second), Rates: Rates(o.cores)}
	k.Load = max(before, load())
	if k.Rates.Known() { // another process may have what this one lacks
		k.keep(o.path(folder))
	}
	return k
}

// join is JoiningRates.
func (o owner) join(folder string) *topo.Rates {
	k, ok := o.read(folder)
	if ok && !k.stale(time.Now(), load(), o.cores) {
		return k.known()
	}
	unlock, err := lock(o.path(folder))
	if err != nil {
		return k.known()
	}
	if again, ok := o.read(folder); ok && !again.stale(time.Now(), load(), o.cores) {
		unlock() // another process has measured meanwhile
		return again.known()
	}
	// What is kept if the measurement does not end: the others wait a little before they try again.
	k.Format, k.Load, k.Measured = keptFormat, 0, time.Now().Add(retryAfter-keptFor)
	if k.keep(o.path(folder)) != nil {
		unlock()
		return k.known()
	}
	measured := make(chan Kept, 1)
	go func() {
		defer unlock()
		measured <- o.measure(folder)
	}()
	select {
	case k = <-measured:
	case <-time.After(joinSpan):
	}
	return k.known()
}

func (k *Kept) known() *topo.Rates {
	if k.Rates.Known() {
		return &k.Rates
	}
	return nil
}

// keep writes a file as a whole, or not at all: many ranks may do so at the same time.
func (k *Kept) keep(path string) error {
	folder := filepath.Dir(path)
	text, err := json.Marshal(k)
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(folder, ".part-*")
	if err != nil {
		return err
	}
	_, err = part.Write(append(text, '\n'))
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		os.Remove(part.Name())
		return err
	}
	removeOld(folder)
	return nil
}

// removeOld removes what was kept for boots and containers that are long gone.
func removeOld(folder string) {
	all, _ := filepath.Glob(filepath.Join(folder, "rates-*"))
	for _, path := range all {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > keptFor {
			os.Remove(path)
		}
	}
}

// lock locks a file for this process, unless another one has it.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, err
	}
	return func() {
		syscall.Flock(int(file.Fd()), syscall.LOCK_UN) // a child may have the file, too
		file.Close()
	}, nil
}

// load returns how many processes wanted to run in the last minute, or want to now beside this one:
// ranks start at the same time.
func load() float64 {
	var minute, ignored float64
	var now int
	fmt.Sscanf(word("/", "proc/loadavg"), "%g %g %g %d/", &minute, &ignored, &ignored, &now)
	return max(minute, float64(now-1))
}
