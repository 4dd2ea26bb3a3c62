#include "future.h"

#include <torch/csrc/jit/python/pybind_utils.h>

namespace goccl {
namespace {

using torch::jit::PythonFutureWrapper;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

std::shared_ptr<PythonFutureWrapper> wrapper_of(const py::object& future) {
  return future.cast<std::shared_ptr<PythonFutureWrapper>>();
}

// A future of Python's class for a future of C++. torch makes no subclasses of futures that exist
// already, so it is made for one of its own, which is replaced.
py::object in_python(FuturePtr future, LineagePtr lineage) {
  static PyObject* type = nullptr; // guarded by the GIL, which an import may release
  if (type == nullptr) type = py::object(py::module_::import("goccl._futures").attr("Future")).release().ptr();
  const py::object made = py::reinterpret_borrow<py::object>(type)(std::move(lineage));
  wrapper_of(made)->fut = std::move(future);
  return made;
}

// The callback as torch calls it. own is the lineage of the future that it gets, next its own.
py::function within(FuturePtr future, LineagePtr own, LineagePtr next, py::function callback) {
  return py::cpp_function([future = std::move(future), own = std::move(own), next = std::move(next),
                           callback = std::move(callback)](const py::object&) -> py::object {
    const Callback running(next);
    return callback(in_python(future, own));
  });
}

} // namespace

py::object python_future(EndingWork& work, bool result) {
  FuturePtr future;
  LineagePtr lineage;
  {
    const py::gil_scoped_release no_gil;
    lineage = work.lineage();
    if (lineage && work.futures_wait()) {
      lineage = nullptr;
      try {
        work.wait(kNoTimeout);
      } catch (const std::exception&) { // the future has the error of the operation
        if (std::current_exception() != work.exception()) throw;
      }
    }
    future = result ? work.getFutureResult() : work.getFuture();
  }
  if (!lineage) return py::cast(std::make_shared<PythonFutureWrapper>(std::move(future)));
  return in_python(std::move(future), std::move(lineage));
}

py::object then(const py::object& future, const LineagePtr& lineage, py::function callback) {
  const auto of = wrapper_of(future);
  LineagePtr next = lineage->next();
  const auto after = of->then(within(of->fut, lineage, next, std::move(callback)));
  return in_python(after->fut, std::move(next));
}

void add_done_callback(const py::object& future, const LineagePtr& lineage, py::function callback) {
  const auto of = wrapper_of(future);
  of->add_done_callback(within(of->fut, lineage, lineage->next(), std::move(callback)));
}

} // namespace goccl
