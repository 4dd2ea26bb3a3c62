// Package signals is how the library learns of the one signal that a process gives it.
package signals

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Watch has told called for each signal of a number from now on; those that come while told runs
// count as one. It reports false if the program keeps the signal for itself.
type Watch func(number syscall.Signal, told func()) (bool, error)

var (
	mu       sync.Mutex
	way      Watch = notify
	watching bool
)

// Use sets the way in which this process learns of signals, and forgets that one was watched. It
// returns what undoes that. In a process that is not a program in Go, the library that is loaded
// there has a way of its own.
func Use(w Watch) (undo func()) {
	mu.Lock()
	defer mu.Unlock()
	before := way
	way, watching = w, false
	return func() { Use(before) }
}

// First has a signal watched, unless one is watched already. It reports whether it is the one.
func First(number syscall.Signal, told func()) (bool, error) {
	mu.Lock()
	defer mu.Unlock()
	if watching {
		return false, nil
	}
	var err error
	watching, err = way(number, told)
	return watching, err
}

// notify is the way of a program in Go, which gets the signal, too, if it asks for it.
func notify(number syscall.Signal, told func()) (bool, error) {
	if signal.Ignored(number) {
		return false, nil
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, number)
	go func() {
		for range came {
			told()
		}
	}()
	return true, nil
}
