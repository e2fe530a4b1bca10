// The choice of a path on a GPU, for Python; in every build, since it needs no GPU.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "cuda/plan.h"

namespace rotcell::module {

// A GPU by its name in cuda/known_devices.h, or by a dict of its properties.
cuda::DeviceProperties device_argument(const pybind11::object& device);

cuda::Path path_argument(const std::string& name);

pybind11::dict as_dict(const cuda::DeviceProperties& device);

// Defines cuda_plan and known_cuda_devices.
void define_plan_functions(pybind11::module_& m);

}  // namespace rotcell::module
