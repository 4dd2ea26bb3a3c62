// Package tune chooses the algorithm of a collective.
//
// The ranks of a group must choose the same algorithm, so the choice is a pure function of values
// on which they have agreed: what the group runs on (topo.Group), and what the user wants (Wishes).
// Measurements of a rank while the group runs never change it; where trials do (package online),
// the ranks have agreed on their times.
//
// # Tables
//
// Measured choices are in a table: a row gives the algorithm that groups of a kind use for vectors
// up to a size. The text form is a line "goccl tune table 2", then one row per line, of six words:
//
//	collective  ranks  oversubscribed  hosts  size  algorithm
//	all_reduce  3-4    yes             any    32K   direct
//
// The words are:
//
//   - ranks: 2, 3-4 or 9+ (nine or more).
//   - oversubscribed: whether ranks outnumber the cores that they share: yes, no, or any.
//   - hosts: 1, 2-4, 2+ or any. The ranks of a host share memory; ranks that share none with others
//     are hosts of their own.
//   - size: the most bytes, in the form that humanize.ParseSize reads, or any. It is compared with
//     the bytes of Choose. all_to_all, scatter, gather and barrier always have any: there a rank
//     does not know how much the others move.
//
// A # begins a comment. Tables state in comments where their times come from; goccl tune --measure
// writes such tables.
//
// The first row that fits and that the group can run is used. An algorithm that reads windows needs
// a group with windows, and where Wishes.Determinism asks for rank order other algorithms are
// passed over. So each size has rows for those groups too. A row that no group would ever use is an
// error, as are unknown algorithms and algorithms that make no plan for the ranks.
//
// The table of Wishes comes first, then the library's table (default.table), then the rules for
// unmeasured calls, which the comment of Choose states.
package tune
