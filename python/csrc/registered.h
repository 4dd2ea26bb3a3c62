// Tensors in registered memory, which ranks of one host read where it lies.
#pragma once

#include <string>

#include <ATen/ATen.h>

namespace goccl {

// An uninitialized CPU tensor in registered memory, which is given back with its last reference, also after the last group is gone. Where no group
// was made yet, lines are the options that count. Throws where there is no such memory. Call it without the GIL.
at::Tensor empty(at::IntArrayRef size, at::ScalarType type, const std::string& lines);

} // namespace goccl
