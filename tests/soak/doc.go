// Package soak has four processes call mixed collectives and messages for as long as asked: in six
// groups that overlap, from several threads, in blocks of all lengths and types, blocking and not,
// with waits that are given up and ranks that are late. Each result is compared bit for bit with
// what every rank computes alone from the seed.
//
// The roads are shm, tcp (loopback; sockets are broken at random) and hosts (two ranks on each of
// two hosts of package hosts; sockets are broken, and interfaces are down for up to a second).
// Nothing may fail, hang or leak: descriptors, goroutines and memory are compared over time.
//
// make soak runs it for half an hour by each road, make test for some seconds.
package soak
