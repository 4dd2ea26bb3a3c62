// Package online chooses algorithms by trying them in the calls of a program.
//
// The calls of a collective with about the same size, for which the usual choice is the same, are a
// class. In the first calls of a class its candidates take turns: the usual choice and one or two
// others. Which call runs which candidate follows from the number of calls alone, so all ranks try
// the same one in the same call, however long each of them takes.
//
// Times differ between ranks. After each round of trials the ranks tell each other how long the
// best trial of each candidate took, and what counts is the longest of these: the call has not
// ended before. So every rank goes on with the same candidates, and in the end with the same
// winner.
//
// A Tuner has no clock, no threads and no links. Package exec asks it how a call runs, tells it how
// long that took, and exchanges the times.
package online
