// Package pgbackend implements the semantics of a torch process group on top of the core: one Node
// per process, created with its first group; groups that are opened, exchange addresses over
// torch's store, join, and may be given other members later; a timeout for joining and for every
// operation; monitored barriers; all-reduce of sparse tensors; and the queue (Queue) that decides
// which futures and hooks are due on which helper thread.
package pgbackend
