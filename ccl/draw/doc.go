// Package draw turns a plan into pictures: Run follows the data that its steps move, round by
// round; SVG draws it.
//
// A round is a position on the longest chain of messages: a message is in the round after
// everything that its two lanes did before it. These are the rounds that package verify counts.
// Puts, packets and gets count as messages here. Signals and waits, which verify counts too, have a
// round only if nothing else would show them: a signal is in the round of the put that it
// announces; otherwise it is in the round after the previous steps of its lane, together with all
// other signals that its lane gives there.
//
// Ranks are rows, rounds are columns, each message is an arrow in the colour of the chunk that it
// carries. Rounds that do not fit side by side are placed in bands, one below the other.
//
// A plan that is wrong is drawn with the verdict of package verify: a banner, an edge around the
// chunks that the steps at fault move, and dashes for steps that never happen because a lane waits
// forever before them.
package draw
