// The tags of messages that are the library's own. Tags of users are ints that are not negative, so the upper half is free.
//
// The number of the operation is part of the tag: what a late rank sends for one that has failed is never taken for the next.
#pragma once

#include <cstdint>

namespace goccl::tags {

constexpr uint32_t kOwn = 0x80000000u, kSparse = 0x40000000u, kNumbers = 0x1fffffffu;

// part is 0 or 1: the arrival at a monitored barrier and its verdict; the indices and the values of a sparse tensor.
constexpr uint32_t monitored_barrier(uint32_t number, uint32_t part) { return kOwn | (number & kNumbers) << 1 | part; }
constexpr uint32_t sparse(uint32_t number, uint32_t part) { return kOwn | kSparse | (number & kNumbers) << 1 | part; }

} // namespace goccl::tags
