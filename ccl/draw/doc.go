// Package draw turns a plan into pictures: Run follows what its steps move, round by round; SVG
// draws that.
//
// A round is a place on the longest chain of messages: a message is in the round after everything
// that its two lanes did before. These are the rounds that package verify counts. Puts, packets and
// gets are like messages there; signals and waits, which verify counts too, have a round only where
// nothing else would show them: a signal is in the round of the put that it is about, or else in
// the round after what its lane did before, with all other signals that its lane gives there.
//
// Ranks are rows, rounds are columns, each message is an arrow in the colour of the chunk that it
// carries. Rounds that do not fit side by side stand in bands, one below the other.
//
// A plan that is wrong is drawn with what package verify says of it: a banner, an edge around what
// the steps to blame move, and dashed what never happens since a lane waits for ever before it.
package draw
