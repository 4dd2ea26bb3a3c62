// Package blame finds out who is to blame when the operations of a group do not end, or end badly:
// whom an error names. A Detector is told what happens, and says what follows; it moves no data and
// ends nothing itself. Of the operations of its rank it reads what Lanes has.
//
// Each part has one question:
//
//   - Comparison: which rank has called something else (compare.go)?
//   - Inquiry: for whom do the others wait, and who keeps all of them waiting (inquiry.go,
//     verdict.go)?
//   - Losses: which ranks have died? Those that are left name the same ones (losses.go).
//   - Ending: has the group ended on another rank, and why (ending.go)?
//
// Ranks tell each other by control messages (control.go), which a goroutine of the transport
// handles even while the threads of a rank compute. Everything that a peer says is checked. Times
// are monotonic nanoseconds of the caller's clock, except where a function waits itself.
package blame
