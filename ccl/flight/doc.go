// Package flight reads the records that the ranks of a job have left (package trace's, or those of
// torch's own flight recorder), lays them beside each other, and names the first difference: a rank
// that has not made a call which others are in, ranks that have called different things, an
// operation that does not end.
//
// The files may come from anywhere. Reading them executes nothing and takes bounded memory.
package flight
