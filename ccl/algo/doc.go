// Package algo has the collective algorithms, one file each. They are pure functions from a
// plan.Spec to a plan.
//
// # Cost
//
// The comments give the time of an algorithm in the usual model: α is the cost of a message, β of
// moving a byte, γ of reducing a byte, n the number of ranks and m the bytes of one block. In this
// model a rank sends one message and receives one message at a time.
//
// # Lanes
//
// A rank that both sends and receives does so in two lanes, since a sender that waits for credit
// must not keep the rank from receiving. Lane 0 sends; lane 1 receives. A rank that only sends or
// only receives has only lane 0.
package algo
