// Python's future of a work: a torch.futures.Future whose callbacks know what they belong to
// (goccl/_futures.py).
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "callbacks.h"
#include "work.h"

namespace goccl {

// What get_future of Python returns; result: get_future_result.
py::object python_future(EndingWork& work, bool result);

// then and add_done_callback of such a future: the callback runs as a Callback of its lineage.
py::object then(const py::object& future, const LineagePtr& lineage, py::function callback);
void add_done_callback(const py::object& future, const LineagePtr& lineage, py::function callback);

} // namespace goccl
