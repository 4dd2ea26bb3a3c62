// Package conformance is the suite of the contract of package cuda: every driver passes it, on a
// GPU as well as without one.
//
// A driver's own test calls Run. Its TestMain should call Child, so that the suite can start the
// test's program as a second process. The suite keeps the contract itself, and tells a
// cuda.Observer what the host accesses.
package conformance
