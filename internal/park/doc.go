// Package park waits: it spins, then yields, then sleeps in the kernel until a thread rings.
//
// A Spinner paces one wait; a thread sleeps on a Doorbell. What a wait does depends on what is
// known:
//
//   - At the start, whether ranks outnumber cores (Join, Cores). Cores are those that affinity and
//     the quota of control groups allow, shared by all ranks of this host. The limits are read
//     again once a second by a thread that is about to sleep.
//   - Afterwards, what yields do. If they return at once, no thread took the core, so waits spin
//     first. If peers took the core, waits only yield. If they last as long as a time slice,
//     threads that compute took the core, and waits sleep without yielding for a while.
//   - How long waits last. Where the core is free, the time awake is chosen among a few values by
//     what each would have cost.
//
// Where ranks outnumber cores, Seats spreads them evenly, and a thread spins (Spin) if it knows
// that the peer runs on another core and that no other rank needs this one.
//
// No wait stays awake for longer than MaxSpin, whatever was learned or set. BenchmarkStrategy
// compares ways to wait.
//
// The API of this package is not stable.
package park
