// C functions of the CUDA library for Python, called by ctypes.
#pragma once

#include <cstdint>

extern "C" {

// 1 if this library has code that the GPU can run; 0 if not, or if the driver is too old for the
// CUDA runtime in it.
int rotcell_cuda_has_kernels(int device);

// The properties of a GPU in the order of cuda/platform/device.h. 0, or -1 if there is none.
int rotcell_cuda_device(int device, int64_t properties[]);

// Paths are 0 stepwise, 1 resident, 2 cooperative, 3 cluster. Cells and dtypes count as in their
// enums. A function that is given a number it does not know does nothing and returns -1.

// For tests and checks: the path that all calls take; -1 for the plan's choice.
int rotcell_cuda_force_path(int path);

// The same for the calling thread.
int rotcell_cuda_force_path_of_thread(int path);

// Whether a path may be taken at all.
int rotcell_cuda_allow_path(int path, int allowed);

// Never takes a path (0 to 3) again for this device, cell and dtype, or switches off projections
// (4) or state hooks (5) on the stepwise path.
int rotcell_cuda_switch_off(int device, int cell, int number, int what);

// 1 if a path is left for such calls, 0 if the reference has to run them.
int rotcell_cuda_can_run(int device, int cell, int number, int projection, int state_hooks);

// For tests: everything is on again.
void rotcell_cuda_switch_on_all(void);
}
