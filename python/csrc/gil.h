#pragma once

#include <Python.h>

namespace goccl {

// Gives the GIL away for a scope, if this thread has it. For what may be called both from Python and from C++ threads that
// never saw the interpreter, and may wait.
class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

} // namespace goccl
