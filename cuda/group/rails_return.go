package group

import "github.com/goccl/goccl/cuda"

// In a ring it follows from the messages, too, that a receive comes after the send of what it
// overwrites: a chunk comes back only after it has gone. In other plans it does not.

// hasSent marks the end of a send.
func (l *line) hasSent(mark cuda.Event) error { return mark.Record(l.pipeline.last()) }

// afterSend has a receive come after a send.
func (l *line) afterSend(sent cuda.Event) error { return l.pipeline.last().Wait(sent) }
