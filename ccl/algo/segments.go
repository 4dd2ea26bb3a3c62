package algo

// segments is into how many chunks the pipelined algorithms cut what travels along one path. More of them fill a
// longer pipeline better, but each costs α at every rank; the executor cuts large chunks further.
const segments = 8
