// Package park waits: spin, then yield, then sleep in the kernel until somebody rings.
//
// A Spinner paces one wait, a Bell is slept on. What a wait does is decided by what can be known:
//
//   - whether ranks outnumber cores, for a start (Join, Cores): cores are those that affinity and the quota of control groups
//     allow, shared by all ranks of this host, and read again once a second by whoever is about to sleep;
//   - what yields do, afterwards: ones that come back at once gave the core to nobody, so waits spin first; ones that peers
//     took are all that waits do; ones that last as long as a time slice went to threads that compute, and waits sleep without
//     yielding for a while;
//   - how long waits last: where the core is free, the time awake is chosen among a few, by what each would have cost.
//
// Where ranks outnumber cores, Seats spreads them evenly, and who knows that the peer runs on
// another core, and that nobody needs this one, spins (Spin).
//
// No wait stays awake for longer than MaxSpin, whatever was learned or set. BenchmarkStrategy
// compares ways to wait.
//
// Its API is not stable.
package park
