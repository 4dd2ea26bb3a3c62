// The extension module goccl._C.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "future.h"
#include "helper.h"
#include "sparse.h"

namespace py = pybind11;
using namespace goccl;
using NoGil = py::call_guard<py::gil_scoped_release>;

namespace {
// Because its type is known, a Work is found at once, and is dropped without releasing the GIL, which
// torch does for Works whose destruction may wait for other threads. These never wait.
template <typename W, typename Base>
void add_work(py::module_& m, const char* name) {
  py::class_<W, c10::intrusive_ptr<W>, Base>(m, name)
      .def("get_future", [](W& self) { return python_future(self, false); })
      .def("get_future_result", [](W& self) { return python_future(self, true); });
}
} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::module_::import("torch.distributed"); // the base classes are registered there
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();

  py::class_<GocclOptions, c10::intrusive_ptr<GocclOptions>, c10d::Backend::Options>(m, "Options")
      .def(py::init<std::chrono::milliseconds, std::string>(), py::arg("timeout"), py::arg("lines") = "")
      .def_readwrite("lines", &GocclOptions::lines)
      .def_readwrite("told", &GocclOptions::told)
      .def_readwrite("trace_prefix", &GocclOptions::trace_prefix)
      .def_readwrite("trace_failures", &GocclOptions::trace_failures)
      .def_readwrite("strangers", &GocclOptions::strangers)
      .def_readwrite("blocking_wait", &GocclOptions::blocking_wait)
      .def_readwrite("wait_futures", &GocclOptions::wait_futures)
      .def("__copy__", [](const GocclOptions& self) { return c10::make_intrusive<GocclOptions>(self); })
      .def("__deepcopy__", [](const GocclOptions& self, py::dict) { return c10::make_intrusive<GocclOptions>(self); });

  py::class_<GocclBackend, c10::intrusive_ptr<GocclBackend>, c10d::Backend>(m, "GocclBackend")
      .def_property_readonly("options", [](GocclBackend& self) {
        return c10::static_intrusive_pointer_cast<GocclOptions>(self.getBackendOptions());
      })
      // That of CUDA devices, for torch.cuda.MemPool: Python has no type for one of the host.
      .def_property_readonly("mem_allocator", [](GocclBackend& self) -> py::object {
        return py::module_::import("goccl._registered").attr("allocator")();
      })
      .def("_remaining", &GocclBackend::remaining, py::arg("without"), py::arg("quorum"), py::arg("options"),
           NoGil())
      .def("_grown", &GocclBackend::grown, py::arg("newcomers"), py::arg("wait"), py::arg("options"), NoGil())
      .def("_address", &GocclBackend::address)
      .def("_use_store", &GocclBackend::use_store, py::arg("store"))
      .def("_locate", &GocclBackend::locate, py::arg("rank"))
      .def("_abort_because", py::overload_cast<const std::string&>(&GocclBackend::abort), py::arg("reason"), NoGil())
#ifdef C10D_BACKEND_HAS_RECONFIGURE
      .def("_become", &GocclBackend::become, py::arg("next"))
#endif
      // torch calls this on the ranks that are not in a new group; NCCL needs their help, goccl
      // does not.
      .def("perform_nocolor_split", [](GocclBackend&, const py::object&) {}, py::arg("device"));

  py::class_<Lineage, LineagePtr>(m, "Lineage");
  m.def("then", &then, py::arg("future"), py::arg("lineage"), py::arg("callback"));
  m.def("add_done_callback", &add_done_callback, py::arg("future"), py::arg("lineage"), py::arg("callback"));
  add_work<GocclWork, c10d::Work>(m, "GocclWork");
  add_work<SparseWork, GocclWork>(m, "SparseWork");
  add_work<BatchWork, c10d::Work>(m, "BatchWork");
  py::class_<DeviceWork, c10::intrusive_ptr<DeviceWork>, c10d::Work>(m, "DeviceWork");

  m.def("load", &load, py::arg("path"), NoGil());
  m.def("library_path", &library_path);
  m.def("use_device_type", &use_device_type, py::arg("name"));
  m.def("come", &GocclBackend::come, py::arg("address"), py::arg("options"), NoGil());
  m.def("create", &GocclBackend::create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
        NoGil());
  m.def("cannot_join", &GocclBackend::cannot_join, py::arg("store"), py::arg("rank"), py::arg("size"),
        py::arg("options"), py::arg("why"), NoGil());
  m.def("empty", &empty, py::arg("size"), py::arg("dtype"), py::arg("lines"), NoGil());
  m.def("device_arena", &device_arena, py::arg("device"), py::arg("lines"), NoGil());
  m.def("trace", [] { return py::bytes(trace()); });
  // Hooks end first: they may need the interpreter, and closing groups because the interpreter ends
  // is not a failure.
  m.def("stop", [] { Observers::stop(), GocclBackend::close_all(), helper::stop(); }, NoGil());
}
