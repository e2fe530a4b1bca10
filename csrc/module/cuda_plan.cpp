#include "module/cuda_plan.h"

#include <pybind11/stl.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "cells/list.h"
#include "cuda/known_devices.h"
#include "cuda/plan.h"

namespace rotcell::module {
namespace {

namespace py = pybind11;

template <class Value>
using Names = std::pair<const char*, Value>;

template <class Value, size_t count>
Value named(const char* what, const std::array<Names<Value>, count>& names,
            const std::string& name) {
  std::string all;
  for (const auto& [known, value] : names) {
    if (name == known) return value;
    all += std::string(all.empty() ? "" : ", ") + known;
  }
  throw py::value_error(std::string(what) + " must be one of " + all + ", got '" + name + "'");
}

CellIndex cell_argument(const std::string& name) {
  const CellIndex cell = cell_named(name);
  if (cell >= 0) return cell;
  std::string all;
  for (const CellDescription& known : kCells) {
    all += std::string(all.empty() ? "" : ", ") + known.name;
  }
  throw py::value_error("cell must be one of " + all + ", got '" + name + "'");
}

constexpr std::array<Names<cuda::Pass>, 2> kPasses = {
    {{"forward", cuda::Pass::kForward}, {"backward", cuda::Pass::kBackward}}};
constexpr std::array<Names<cuda::Number>, 4> kNumbers = {{{"float32", cuda::Number::kFloat32},
                                                          {"float64", cuda::Number::kFloat64},
                                                          {"float16", cuda::Number::kFloat16},
                                                          {"bfloat16", cuda::Number::kBFloat16}}};

template <class T>
T property(const py::dict& properties, const char* name) {
  if (!properties.contains(name)) {
    throw py::value_error("device must have all properties; " + std::string(name) + " is missing");
  }
  return properties[name].cast<T>();
}

py::object cuda_plan(const std::string& cell, const std::string& pass, int64_t hidden,
                     int64_t batch, int64_t steps, const std::string& dtype,
                     const py::object& device, bool projection,
                     const std::optional<std::string>& path) {
  const cuda::Request request{cell_argument(cell),
                              named("pass_name", kPasses, pass),
                              hidden,
                              batch,
                              steps,
                              named("dtype", kNumbers, dtype),
                              projection};
  for (const auto& [name, size] :
       {std::pair("hidden", hidden), std::pair("batch", batch), std::pair("steps", steps)}) {
    if (size < 0) throw py::value_error(std::string(name) + " must not be negative");
  }
  const cuda::DeviceProperties properties = device_argument(device);
  const std::optional<cuda::Plan> plan =
      path ? cuda::plan_path(path_argument(*path), request, properties)
           : cuda::choose_plan(request, properties);
  if (!plan) return py::none();
  py::dict result;
  result["path"] = cuda::path_name(plan->path);
  result["graph_steps"] = plan->graph_steps;
  result["rows_per_block"] = plan->rows_per_block;
  result["units_per_block"] = plan->units_per_block;
  result["tile_groups"] = plan->tile_groups;
  result["staged_bytes"] = plan->staged_bytes;
  result["cluster"] = plan->cluster;
  result["tensor_cores"] = plan->tensor_cores;
  result["blocks"] = plan->blocks;
  result["threads"] = plan->threads;
  result["shared_bytes"] = plan->shared_bytes;
  return result;
}

}  // namespace

cuda::Path path_argument(const std::string& name) {
  const std::optional<cuda::Path> path = cuda::path_named(name);
  if (!path) {
    throw py::value_error("path must be stepwise, resident, cooperative or cluster, got '" + name +
                          "'");
  }
  return *path;
}

cuda::DeviceProperties device_argument(const py::object& device) {
  if (py::isinstance<py::dict>(device)) {
    const auto given = device.cast<py::dict>();
    return {property<int>(given, "compute_capability"),
            property<int>(given, "multiprocessors"),
            property<int64_t>(given, "shared_bytes_per_block"),
            property<int64_t>(given, "shared_bytes_per_multiprocessor"),
            property<int>(given, "threads_per_multiprocessor"),
            property<bool>(given, "cooperative_launch"),
            property<int>(given, "largest_cluster")};
  }
  const auto name = device.cast<std::string>();
  const cuda::DeviceProperties* found = cuda::find_known_device(name);
  if (found == nullptr) {
    throw py::value_error(
        "device must be a dict of properties or one of known_cuda_devices(), "
        "got '" +
        name + "'");
  }
  return *found;
}

py::dict as_dict(const cuda::DeviceProperties& device) {
  py::dict properties;
  properties["compute_capability"] = device.compute_capability;
  properties["multiprocessors"] = device.multiprocessors;
  properties["shared_bytes_per_block"] = device.shared_bytes_per_block;
  properties["shared_bytes_per_multiprocessor"] = device.shared_bytes_per_multiprocessor;
  properties["threads_per_multiprocessor"] = device.threads_per_multiprocessor;
  properties["cooperative_launch"] = device.cooperative_launch;
  properties["largest_cluster"] = device.largest_cluster;
  return properties;
}

void define_plan_functions(py::module_& m) {
  m.def("cuda_plan", cuda_plan, py::arg("cell"), py::arg("pass_name"), py::arg("hidden"),
        py::arg("batch"), py::arg("steps"), py::arg("dtype"), py::arg("device"),
        py::arg("projection") = false, py::arg("path") = py::none(),
        "The path a sequence takes on a GPU, with its launch, or how the given path would run; "
        "None if it cannot.");
  m.def(
      "known_cuda_devices",
      [] {
        py::dict devices;
        for (const cuda::KnownDevice& device : cuda::known_devices) {
          devices[py::str(std::string(device.name))] = as_dict(device.properties);
        }
        return devices;
      },
      "Properties of some GPUs, by name.");
}

}  // namespace rotcell::module
