// Package sim predicts how long a plan takes: a discrete-event simulation of its steps over a
// network.
//
// # The model
//
// A message (send, put, get, signal, packet) costs the startup of the topology and the latencies of
// the links of its path; this is its α. Then its bytes flow, at a rate that results from sharing
// each link among all flows that cross it at that moment: max-min fair, by progressive filling. The
// message has arrived when its last byte has. Until then the sending step goes on, so a lane has
// one message in flight at a time. A message waits at the receiver until a step takes it; a send
// never waits for its recv. The kth recv of a (sender, receiver, channel) takes the kth message,
// even if a later message arrives first. A put, a signal and a packet are messages into the window,
// which a wait waits for; a get is a message in the other direction, and a getreduce is as many
// concurrent messages as it has sources in windows of other ranks.
//
// Arithmetic costs Gamma for each byte of each operand after the first, in a reduce, recvreduce or
// getreduce, once all operands are there. A copy costs Copy per byte. Lanes do not slow each other
// down.
//
// Steps store and forward: no data is passed on before all of it has arrived. The closed formulas
// assume the same; a pipelined executor is faster if a step passes on what another step receives.
//
// On network.Uniform the results equal the closed formulas (Formulas); a test checks this.
//
// # Costs
//
// With Options.Costs the ranks are simulated as the executor runs them (package exec), and all that
// they do costs what a table says. Each rank has one thread, which does one thing at a time; where
// ranks outnumber their cores, a thread that has nothing to do gives its core to the next, which
// looks whether something has come; that costs something, too. Bytes cost more if another core has
// touched them last, and if what the ranks of a core touch in a call is more than its cache holds.
// A message is cut into fragments. The thread publishes each, for which it
// needs credit, and goes on; the fragments of a path pass one after the other, and share links as
// above; the receiver's thread takes them. A send whose source another lane receives begins with
// what has come. Puts and signals between hosts are frames that the receiver's thread applies; in a
// host a signal is a word, and what is read of windows costs the reader. Calls follow one another,
// and a rank may be ahead of others as far as credit and slots allow.
//
// A link may have a bucket, as tc's token bucket or the limits of rented machines have: what it
// would have carried in a pause passes at once later. In calls that follow one another the bucket
// is empty sooner or later, so simulations begin with it empty.
//
// Not simulated are the congestion control of TCP, loss, and how the system spreads threads over
// cores.
//
// # Scale
//
// Events of one moment are handled together. When a flow begins or ends, rates are recomputed for
// only as few flows as leave every flow a bottleneck, which makes the rates max-min fair for all. A
// path whose links only one lane ever uses needs no shares. Programs are compiled to 32 bytes per
// step, with loops as loops.
//
// If the programs of ranks r and r+s are the same, for all r, only s of them are kept. If the
// routes repeat in the same way, only s ranks (or a multiple of s) are simulated, each link
// standing for all links that the shift maps it to. Result.Simulated is their number. As a check,
// Options.Full gives every rank its own program and every link its own share.
//
// # Accuracy
//
// On an irregular network, such as a fat tree whose hash puts several flows on one link, the time
// when a flow begins decides which flows it shares links with, and that decides when the next one
// begins. Such a chain of thousands of steps is chaotic: an alpha that differs in its twelfth digit
// has changed the time of a hierarchical all-reduce on 1,024 ranks by 0.2 %. Rounding in the last
// bits has the same effect. The result is always that of some fair schedule of nearly the same
// network; differences of less than a percent mean nothing there.
package sim
