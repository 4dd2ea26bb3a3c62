#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <pybind11/pybind11.h>

#include <mutex>

namespace goccl {

Library lib;
unsigned long main_thread = 0;

static bool in_forked_child = false;
static std::string loaded;

std::string library_path() { return loaded; }

std::string load(const std::string& path) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (lib.version == nullptr) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(handle != nullptr, "goccl: cannot load ", path, ": ", dlerror());
    loaded = path;
    Library found;
#define X(name)                                                                         \
    found.name = reinterpret_cast<decltype(found.name)>(dlsym(handle, "goccl_" #name)); \
    TORCH_CHECK(found.name != nullptr, "goccl: ", path, " has no function goccl_" #name \
                ": it is of another version than this extension; reinstall goccl");
    GOCCL_FUNCTIONS(X)
#undef X
    TORCH_CHECK(pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; }) == 0, "goccl: pthread_atfork failed");
    lib = found;
  }
  char version[64] = "";
  check(lib.version(version, sizeof version), Failure(), "goccl_version");
  return version;
}

// The works that a thread has to give back.
struct Returns {
  ~Returns() { flush(); }
  void flush() {
    if (count > 0 && !leaving()) lib.work_free_all(works, count); // in a fork the works belong to the parent
    count = 0;
  }

  size_t count = 0;
  goccl_work works[16];
};

void free_works(c10::ArrayRef<goccl_work> works) {
  static thread_local Returns returns;
  for (goccl_work work : works) {
    returns.works[returns.count++] = work;
    if (returns.count == std::size(returns.works)) returns.flush();
  }
}

std::exception_ptr raised_by_signals() {
  pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? nullptr : std::make_exception_ptr(pybind11::error_already_set());
}

// KeyboardInterrupt comes without a text; it gets that of the error which it has caused.
static void explain(const std::exception_ptr& interrupt, const char* text) {
  pybind11::gil_scoped_acquire gil;
  try {
    std::rethrow_exception(interrupt);
  } catch (pybind11::error_already_set& e) {
    if (pybind11::len(e.value().attr("args")) == 0) e.value().attr("args") = pybind11::make_tuple(text);
  }
}

int await(goccl_work work, const Limit& limit, goccl_group group, std::exception_ptr& interrupt, goccl_error* error,
          bool* ended) {
  for (int done = 0;;) {
    const int64_t left = interrupt ? -1 : limit.left_ns();
    const int rc = lib.work_wait(work, left, interrupt ? 0 : slice_ns(), &done, error);
    if (ended) *ended = done != 0;
    if (interrupt && rc != GOCCL_OK && error) explain(interrupt, error->text);
    if (rc != GOCCL_OK || done != 0) return rc;
    interrupt = raised_by_signals();
    if (interrupt) lib.group_abort(group, "interrupted by a signal", nullptr);
  }
}

bool forked() noexcept { return in_forked_child; }

bool leaving() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
  return forked() || !Py_IsInitialized() || Py_IsFinalizing();
#else
  return forked() || !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

void fail_forked(const std::string& what) {
  fail(GOCCL_FORKED, what,
       "this process was forked from one that uses goccl, and its groups do not work in a fork; start ",
       "processes that communicate with the 'spawn' or 'forkserver' method of multiprocessing");
}

std::exception_ptr as_exception(int code, const std::string& text) {
  const c10::SourceLocation here = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (code) {
    case GOCCL_INVALID: return std::make_exception_ptr(c10::ValueError(here, text));
    case GOCCL_NOT_SUPPORTED: return std::make_exception_ptr(c10::NotImplementedError(here, text));
    default: return std::make_exception_ptr(CommunicationError(here, text, code));
  }
}

std::exception_ptr as_exception(int code, const goccl_error& error, const char* what) {
  return as_exception(code, error.text[0] != '\0' ? error.text : c10::str("goccl: ", what, " failed with code ", code));
}

} // namespace goccl
