// All kernels, as one program.

#include "reduce.cu"
#include "scale.cu"
#include "convert.cu"
#include "copy.cu"
#include "gather.cu"
#include "tick.cu"
#include "run.cu"
