// Whether the limits of the process leave what a Go runtime takes for granted: it ends the process where a thread or
// addresses are refused to it.
#pragma once

#include <cstddef>
#include <tuple>

namespace goccl {

// Takes so many bytes of address space, threads and descriptors at the same time, and gives all back. Returns whether
// there are the bytes, and how many of the threads and of the descriptors; no threads are tried without the bytes.
std::tuple<bool, int, int> try_room(size_t bytes, int threads, int files);

} // namespace goccl
