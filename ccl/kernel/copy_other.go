//go:build !amd64 || noasm

package kernel

import "unsafe"

const stringCopy = false

func repMovsb(dst, src unsafe.Pointer, n int) { panic("no string copy") }
