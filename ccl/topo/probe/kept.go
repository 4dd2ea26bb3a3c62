package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goccl/goccl/ccl/topo"
)

// Kept are rates that were measured some time, and kept for this user and this machine.
type Kept struct {
	Format   int        `json:"goccl_rates"`
	Measured time.Time  `json:"measured"`
	Rates    topo.Rates `json:"rates"`
	Load     float64    `json:"load"` // processes that wanted to run in the minute before
}

const keptFormat = 1

// KeptRates returns the rates of this machine: those that were kept in the folder, or else it
// measures and keeps them. Where they cannot be kept, they are measured each time.
func KeptRates(folder string, m *topo.Machine) Kept {
	path, k := keptAt(folder, m), Kept{}
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &k) == nil && k.Format == keptFormat &&
		k.Rates.One > 0 && k.Rates.All >= k.Rates.One && k.Rates.Handover >= 0 {
		return k
	}
	return measure(path, m)
}

// MeasureRates measures the rates of this machine, and keeps them in the folder.
func MeasureRates(folder string, m *topo.Machine) Kept { return measure(keptAt(folder, m), m) }

func measure(path string, m *topo.Machine) Kept {
	k := Kept{keptFormat, time.Now().Truncate(time.Second), Rates(usable(m)), load()}
	text, err := json.Marshal(k)
	if err == nil && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		keep(path, append(text, '\n'))
	}
	return k
}

// keep writes a file as a whole, or not at all: many ranks may do so at the same time.
func keep(path string, text []byte) {
	part, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return
	}
	_, err = part.Write(text)
	if part.Close() != nil || err != nil || os.Rename(part.Name(), path) != nil {
		os.Remove(part.Name())
	}
}

// usable returns how many cores this process may use at the same time.
func usable(m *topo.Machine) int {
	if n := int(m.Quota + 0.5); m.Quota > 0 && n < len(m.Processors) {
		return max(n, 1)
	}
	return len(m.Processors)
}

// keptAt returns the file of a machine: machines may share the home of a user.
func keptAt(folder string, m *topo.Machine) string {
	model, _ := Processor()
	host, _ := os.Hostname()
	sum := sha256.Sum256(fmt.Append(nil, host, model, m.Processors, m.Quota, m.Caches))
	return filepath.Join(folder, "rates-"+hex.EncodeToString(sum[:6])+".json")
}

func load() (last float64) {
	fmt.Sscan(word("/", "proc/loadavg"), &last)
	return last
}
