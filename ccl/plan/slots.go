package plan

// These numbers bound how many operations of a group that use windows may be in flight at the same
// time, and so how many copies of their memory exist ("Operations in sequence" in PLAN.md). The
// executor runs with these numbers, and the verifier proves sequences with them.
const (
	// WindowSlots is the number of slots for the chunks of windows.
	WindowSlots = 2
	// WindowRecords is the number of records in which a rank announces its operations. A record
	// also holds all chunks of a window that is tiny.
	WindowRecords = 8
)
