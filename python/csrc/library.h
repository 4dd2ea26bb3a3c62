// The functions of libgoccl, found at run time: the extension has no link-time dependence on it, so importing the
// extension starts no Go runtime.
#pragma once

#include <string>

#include "goccl.h"

#define GOCCL_FUNCTIONS(X)                                                                          \
  X(version)                                                                                        \
  X(group_open) X(group_join) X(group_seq) X(group_set_timeout) X(group_abort) X(group_close)       \
  X(run) X(start)                                                                                   \
  X(work_wait) X(work_test) X(work_source) X(work_seq) X(work_free)                                 \
  X(completions) X(completions_wait)

namespace goccl {

struct Library {
#define X(name) decltype(&::goccl_##name) name = nullptr;
  GOCCL_FUNCTIONS(X)
#undef X
};

// Empty until load has returned.
extern Library lib;

// Opens libgoccl by its absolute path, for this process alone (RTLD_LOCAL), and returns its version. Doing it again is
// harmless. Throws when the file cannot be loaded or is not of this ABI.
std::string load(const std::string& path);

// Whether this process is a fork of the one that loaded libgoccl. A Go runtime does not survive fork: nothing of the
// library may be called then, and what the parent left behind must not be touched.
bool forked() noexcept;

// Throws when forked().
void check_not_forked(const char* what);

} // namespace goccl
