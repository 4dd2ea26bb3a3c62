// Package draw turns a plan into pictures: Run follows what its steps move, round by round; SVG draws that.
//
// A round is a place on the longest chain of messages: a message is in the round after everything that its two lanes did
// before. Ranks are rows, rounds are columns, each message is an arrow in the colour of the chunk that it carries.
package draw
