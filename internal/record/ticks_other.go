//go:build noasm || (!amd64 && !arm64)

package record

func ticks() uint64 { return wallTicks() }
