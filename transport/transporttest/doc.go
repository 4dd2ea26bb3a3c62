// Package transporttest is the conformance suite of the transport contract: every fabric passes it.
//
// A fabric's own test makes two fabrics as two processes would have them and calls Run; what the
// suite finds missing it reports by the sentence of the contract. Fabrics that implement
// transport.Poller are polled and armed by the suite's waiting loops as the executor does it.
package transporttest
