// What Python asks the CUDA library for besides ops, by ctypes.
#pragma once

#include <cstdint>

extern "C" {

// 1 if this library has code that the GPU can run; 0 if not, or if the driver is too old for the
// CUDA runtime in it.
int rotcell_cuda_has_kernels(int device);

// The properties of a GPU in the order of cuda/device.h. 0, or -1 if there is none.
int rotcell_cuda_device(int device, int64_t properties[6]);

// For tests: 0 stepwise, 1 resident, 2 cooperative, -1 the fastest again. -1 for any other number.
int rotcell_cuda_force_path(int path);
}
