#include "library.h"

#include <dlfcn.h>
#include <pthread.h>

#include <mutex>

#include "failure.h"

namespace goccl {

Library lib;

namespace {
bool in_forked_child = false;

std::string version_of(const Library& l, const std::string& path) {
  char text[64] = "";
  const int rc = l.version(text, sizeof text);
  TORCH_CHECK(rc == GOCCL_OK, "goccl: ", path, " does not tell its version (code ", rc, ")");
  return text;
}
} // namespace

std::string load(const std::string& path) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (lib.version != nullptr) {
    return version_of(lib, path);
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    TORCH_CHECK(false, "goccl: cannot load ", path, ": ", why ? why : "unknown reason");
  }
  Library found;
#define X(name)                                                                                              \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(handle, "goccl_" #name));                        \
  TORCH_CHECK(found.name != nullptr, "goccl: ", path, " has no function goccl_" #name                        \
              ": it is of another version than this extension; reinstall goccl");
  GOCCL_FUNCTIONS(X)
#undef X
  std::string version = version_of(found, path);
  TORCH_CHECK(pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; }) == 0, "goccl: pthread_atfork failed");
  lib = found;
  return version;
}

bool forked() noexcept { return in_forked_child; }

void check_not_forked(const char* what) {
  if (C10_UNLIKELY(in_forked_child)) {
    throw_failure(GOCCL_FORKED, what, "this process was forked from one that uses goccl, and its groups do not work in a "
      "fork; start processes that communicate with the 'spawn' or 'forkserver' method of multiprocessing");
  }
}

} // namespace goccl
