// Package topo describes what the ranks of a job run on: hosts, cores, memory, network interfaces,
// GPUs. Package topo/probe reads it from the system.
package topo
