// Package transporttest is the conformance suite of the transport contract: every fabric passes it.
//
// A fabric's own test makes two fabrics as two processes would have them and calls Run. The suite
// reports a violation with the sentence of the contract. Its waiting loops poll and arm fabrics
// that implement transport.Poller, as the executor does.
package transporttest
