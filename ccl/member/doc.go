// Package member lets the processes of a group meet: each writes what the others need into records
// that all can read, and all come to the same verdict: who is in, or why there is no group.
//
// Meeting is one rank's attempt, and pure: it says which record is to be written or read next, and
// is told what came of it. It reads no clock, has no goroutines, and knows nothing of stores; so a
// test explores all orders of what the ranks do. Records are values under keys, as torch's stores
// have them. Each operation happens at one moment; nothing else is assumed.
//
// # Rounds
//
// The same records serve again: after a failure, for a process that takes the place of one that
// died, after a group was destroyed. Each time is a round, and ends with a verdict: the group has
// met, or there is none, and why. The first verdict that is written counts (Swap). All that wait
// look at the verdict and at little else, so whatever concerns the others is written there: that a
// rank gives up, cannot join, or has seen another process with its number. What is written is never
// changed, so all that have met have the same offers.
//
// Who comes offers itself in the first round without a verdict. Whoever is the last to come, by a
// counter, looks whether all offers are there, and if so writes that the group has met. Of each
// rank the newest offer counts. If its process is known to have ended, there is no group; but the
// offer of a process that ended before this job began is as good as none. A process that waits
// looks now and then whether another one has come as the same rank.
//
// # Who comes late
//
// A rank that finds a failed round when it comes is told why, and fails like the others; its next
// attempt meets them in the next round. It is told once, and only what was written after its
// process began: what is older is the story of an earlier job, or of a process in whose place this
// one is.
//
// # Who goes on
//
// Where ranks are lost, Quorum says which part of a group may go on without the rest; Gathering
// finds out who comes to a group that grows. How its ranks agree is package agree.
package member
