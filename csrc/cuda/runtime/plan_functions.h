// The plan, and properties of GPUs, for Python by ctypes. They need no GPU: the CPU library has
// these functions, so that every installation can show what would run on a GPU.
#pragma once

#include <cstdint>

#include "cuda/platform/device.h"

extern "C" {

// The names of the properties of a GPU, with commas between them. Arrays of properties are in this
// order.
const char* rotcell_cuda_property_names(void);

// The name of the index-th well-known GPU, whose properties are written; null if there are fewer.
const char* rotcell_cuda_known_device(int index, int64_t properties[]);

// Cells, passes and dtypes count as in their enums.
struct RotcellRequest {
  int path;  // -1: the path that is predicted to be the fastest
  int cell, pass, number;
  int projection;
  int64_t hidden, batch, steps;
};

// Whether a GPU runs a cell at all.
int rotcell_cuda_has_cell(int cell);

// The names of what describes a plan, with commas between them.
const char* rotcell_cuda_plan_fields(void);

// Writes the plan of a request on a GPU. 0, or -1 if the path of the request cannot run it there.
int rotcell_cuda_plan(const struct RotcellRequest* request, const int64_t properties[],
                      int64_t plan[]);
}

namespace rotcell::cuda {

void write_properties(const DeviceProperties& device, int64_t properties[]);

}  // namespace rotcell::cuda
