// Package pgbackend gives the semantics of a torch process group to the core: one Node a process, made with its first group; groups that are
// opened, exchange addresses over torch's store, and join; a timeout for joining and for every operation.
package pgbackend
