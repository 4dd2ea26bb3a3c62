// Package sim predicts how long a plan takes: a discrete-event simulation of its steps over a
// network.
//
// # The model
//
// A message (send, put, get, signal, packet) costs the startup of the topology and the latencies of
// the links of its path; this is its α. Then its bytes flow, at a rate that the links of the path
// share out among all that flow at that moment: max-min fair, by progressive filling. It has
// arrived when the last byte has. Until then the step that sent it goes on, so a lane has one
// message under way at a time. A message waits at the receiver until somebody wants it; a send
// never waits for its recv. The kth recv of a (sender, receiver, channel) takes the kth message,
// also when the one after it came first. A put, a signal and a packet are messages into the window,
// which a wait waits for; a get is one in the other direction, and a getreduce is as many at a time
// as it has sources in windows of other ranks.
//
// Arithmetic costs Gamma for each byte of each operand after the first, in a reduce, recvreduce or
// getreduce, when all operands are there. A copy costs Copy a byte. Lanes do not slow each other
// down.
//
// Steps store and forward: nothing is passed on before it is there as a whole. The closed formulas
// assume the same; a pipelined executor is faster where a step passes on what another receives.
//
// On network.Uniform the results equal the closed formulas (Formulas), which a test holds.
//
// # Scale
//
// Events of one moment are handled together. Where a flow begins or ends, rates are computed anew
// for as few flows as leave every flow a bottleneck, which makes them max-min fair for all. A path
// whose links only one lane ever uses needs no shares. Programs are compiled to 32 bytes a step,
// loops as loops.
//
// Where the programs of rank r and r+s are the same, for all r, s of them are kept. Where the
// routes look the same too, only s ranks are simulated (or a multiple of s), each link standing for
// all links that the shift maps it to. Result.Simulated says how many. Options.Full gives every
// rank its own program and every link its own share, as a check.
//
// # How sure it is
//
// On an irregular network, such as a fat tree whose hash piles some flows up, when a flow begins
// decides with whom it shares, and that decides when the next one begins. Such a chain of thousands
// of steps is chaotic: an alpha that differs in its twelfth digit has changed the time of a
// hierarchical all-reduce on 1,024 ranks by 0.2 %. The last bits of a rounding do the same. The
// result is always that of some fair schedule of nearly the same network; differences of less than
// a percent mean nothing there.
package sim
