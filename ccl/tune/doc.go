// Package tune chooses the algorithm of a collective.
//
// The ranks of a group must choose the same one, so the choice is a pure function of values that
// they have agreed on; what a rank measures while the group runs never changes it.
//
// # Tables
//
// What was measured is a table: a row says which algorithm groups of a kind use for vectors up to a
// size. The text form is a line "goccl tune table 1", then one row a line of six words:
//
//	collective  ranks  oversubscribed  shared  size  algorithm
//	all_reduce  3-4    yes             any     32K   direct
//
// The words are:
//
//   - ranks: 2, 3-4 or 9+ (nine or more).
//   - oversubscribed: whether ranks outnumber the cores that they share: yes, no, or any.
//   - shared: whether all ranks share memory: yes, no, or any.
//   - size: up to how many bytes, as humanize.ParseSize reads them, or any. It is what Choose takes as bytes. all_to_all,
//     scatter, gather and barrier always have any: there a rank does not know what the others move.
//
// What follows a # is a comment. Tables say in comments where their times come from; goccl tune
// --measure writes such tables.
//
// The first row counts that fits and that the group can run: an algorithm that reads windows needs
// a group with windows, and where Rules.Determinism asks for the order of the ranks others are
// passed over. So each size has rows for those groups too. A row that no group would ever come to
// is an error, as are unknown algorithms and those that make no plan for the ranks.
//
// First comes the table of Rules, then that of the library (default.table), then rules for what
// nobody has measured, which Choose states.
package tune
