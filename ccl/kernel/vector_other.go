//go:build !amd64 || noasm

package kernel

import "github.com/goccl/goccl/ccl/dtype"

const haveAssembly = false

const bestISA = noISA

func vectorSum(dtype.Type, isa) Func { return nil }

func vectorScaling(dtype.Type, isa) ScaleFunc { return nil }
