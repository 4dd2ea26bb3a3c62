// Package humanize reads and writes what people type: sizes with units, and names with a letter
// wrong. It is shared by the options and the command line, and no part of the library's stable
// interface.
package humanize
