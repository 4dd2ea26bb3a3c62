package ccl

// Version is the library's version. All ranks of a group must have the same one.
const Version = "0.1.0"

// PlanFormat counts incompatible changes of the plan language and of the data that travels between
// ranks.
const PlanFormat = 2
