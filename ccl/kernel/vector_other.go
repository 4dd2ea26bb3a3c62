//go:build (!amd64 && !arm64) || noasm

package kernel

import "github.com/goccl/goccl/ccl/dtype"

const haveAssembly = false

// machineISAs lists the instruction sets that this machine can run, the best last.
var machineISAs []isa

func vectorReduction(dtype.Type, dtype.Op, isa) Func { return nil }

func vectorScaling(dtype.Type, isa) ScaleFunc { return nil }

func vectorSumScaling(dtype.Type, isa) SumScaleFunc { return nil }

func vectorFold(dtype.Type, dtype.Op, isa) folds { return folds{} }

func vectorCopy(isa) CopyFunc { return nil }

func vectorConversion(dst, src dtype.Type, with isa) ConvertFunc { return nil }
