// Package humanize parses and formats text for people: sizes with units, and suggestions for
// misspelled names. The options and the command line share it. It is not part of the library's
// stable interface.
package humanize
