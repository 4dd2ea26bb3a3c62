//go:build !amd64 || noasm

package kernel

import "unsafe"

const claims = false

func claimLines(p unsafe.Pointer, n int) { panic("no claims") }

func claimingCopy(dst, src unsafe.Pointer, n, ahead int) { panic("no claims") }
