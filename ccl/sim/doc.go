// Package sim predicts how long a plan takes: a discrete-event simulation of its steps over a network.
//
// # The model
//
// A message (send, put, get, signal, packet) costs the startup of the topology and the latencies of the links of its path;
// this is its α. Then its bytes flow, at a rate that the links of the path share out among all that flow at that moment:
// max-min fair, by progressive filling. It has arrived when the last byte has. Until then the step that sent it goes on,
// so a lane has one message under way at a time. A message waits at the receiver until somebody wants it; a send never
// waits for its recv. The kth recv of a (sender, receiver, channel) takes the kth message, also when the one after it came first.
// A put, a signal and a packet are messages into the window, which a wait waits for; a get is one in the other
// direction, and a getreduce is as many at a time as it has sources in windows of other ranks.
//
// Arithmetic costs Gamma for each byte of each operand after the first, in a reduce, recvreduce or getreduce, when all
// operands are there. A copy costs Copy a byte. Lanes do not slow each other down.
//
// Steps store and forward: nothing is passed on before it is there as a whole. The closed formulas assume the same; a
// pipelined executor is faster where a step passes on what another receives.
//
// On network.Uniform the results equal the closed formulas (Formulas), which a test holds.
//
// # Scale
//
// Events of one moment are handled together, and rates are computed anew only for the flows that share links, directly or through
// others, with one that began or ended. Programs are compiled to 48 bytes a step, loops as loops. Where a plan and
// its routes look the same from rank r and from rank r+s, for all r, only s ranks are simulated, each link standing for all links that
// the shift maps it to. Result.Simulated says how many; Options.Full switches this off.
package sim
