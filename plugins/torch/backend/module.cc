// The Python module tutti_torch._backend.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace py = pybind11;

namespace tutti_torch {
namespace {

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         const c10::intrusive_ptr<GroupOptions>& options,
                                         c10d::ProcessGroup* group) {
  const auto owner = group != nullptr ? Backend::Owner::unsafe_reclaim_from_nonowning(group) : nullptr;
  return Backend::create(store, rank, size, options, owner);
}

}  // namespace
}  // namespace tutti_torch

PYBIND11_MODULE(_backend, module) {
  using tutti_torch::GroupOptions;
  const py::object c10d = py::module::import("torch._C._distributed_c10d");
  const auto copy = [](const GroupOptions& self) { return c10::make_intrusive<GroupOptions>(self); };
  py::class_<GroupOptions, c10::intrusive_ptr<GroupOptions>>(
      module, "Options", c10d.attr("Backend").attr("Options"),
      "Options of a group: init_process_group(..., pg_options=tutti.torch.Options(reproducible=True)).")
      .def(py::init([](bool reproducible, int threads, std::chrono::milliseconds timeout) {
             auto options = c10::make_intrusive<GroupOptions>(timeout);
             options->reproducible = reproducible;
             options->threads = threads;
             return options;
           }),
           py::arg("reproducible") = false, py::arg("threads") = 0,
           py::arg("timeout") = kBackendDefaultTimeout)
      .def_readwrite("reproducible", &GroupOptions::reproducible,
                     "same bits whatever the algorithm, message size and placement; equal on all ranks")
      .def_readwrite("threads", &GroupOptions::threads,
                     "threads that work on one long operation of a rank; 0: the default; equal on all ranks")
      .def("__copy__", copy)
      .def("__deepcopy__", [copy](const GroupOptions& self, const py::dict&) { return copy(self); });
  module.def("create", &tutti_torch::create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("options"), py::arg("group") = nullptr, py::call_guard<py::gil_scoped_release>(),
             "Joins a group through a c10d store. Blocks until all ranks have come.");
  py::module::import("atexit").attr("register")(py::cpp_function(&tutti_torch::Backend::leave_all));
}
