package plan

// How many operations of a group that use windows may be under way at the same time, and so how
// often there is memory for them ("Operations in sequence" in PLAN.md). The executor runs with
// these numbers, and the verifier proves sequences with them.
const (
	// WindowSlots is the slots of the chunks of windows.
	WindowSlots = 2
	// WindowNotices is what a rank has to say of its operations, with all chunks of a window where
	// they are tiny.
	WindowNotices = 8
)
