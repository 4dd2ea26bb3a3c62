#pragma once

#include <string>

namespace goccl {

// What the groups of this process remember of their last operations: a pickle, as torch's flight recorder writes it.
std::string trace();

// Writes it to a file, and hands it to torch's recorder of this backend, which answers torch's own dump calls. torch has no way to ask a
// backend, so these know what was there at the last failure.
void leave_trace(const std::string& path);

} // namespace goccl
