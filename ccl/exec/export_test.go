package exec

// WindowChannel is the channel of puts and signals.
const WindowChannel = windowChannel
