// Package probe reads from the system the data that package topo describes. It changes nothing,
// needs no privileges, and every probe is quick.
package probe
