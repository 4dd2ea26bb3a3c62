// Package tune chooses the algorithm of a collective.
//
// The ranks of a group must choose the same one, so the choice is a pure function of values that they have agreed on; what
// a rank measures while the group runs never changes it.
package tune
