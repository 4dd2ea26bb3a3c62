package algo

// segments is the number of chunks into which the pipelined algorithms cut the data of one path.
// More chunks fill a longer pipeline better, but each costs α at every rank; the executor cuts
// large chunks further.
const segments = 8
