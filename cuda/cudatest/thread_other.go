//go:build !linux

package cudatest

import (
	"bytes"
	"runtime"
	"strconv"
)

// threadID identifies the goroutine: "goroutine 18 [running]".
func threadID() int {
	var text [64]byte
	words := bytes.Fields(text[:runtime.Stack(text[:], false)])
	id, _ := strconv.Atoi(string(words[1]))
	return id
}
