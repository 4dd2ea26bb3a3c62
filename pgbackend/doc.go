// Package pgbackend gives the semantics of a torch process group to the core: one Node a process,
// made with its first group; groups that are opened, exchange addresses over torch's store, join,
// and may get other members; a timeout for joining and for every operation; monitored barriers;
// all-reduce of sparse tensors; and which futures and hooks are due on which helper thread (Queue).
package pgbackend
