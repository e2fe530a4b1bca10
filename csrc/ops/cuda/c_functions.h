// What Python asks the CUDA library for besides ops, by ctypes.
#pragma once

#include <cstdint>

extern "C" {

// 1 if this library has code that the GPU can run; 0 if not, or if the driver is too old for the
// CUDA runtime in it.
int rotcell_cuda_has_kernels(int device);

// The properties of a GPU in the order of cuda/device.h. 0, or -1 if there is none.
int rotcell_cuda_device(int device, int64_t properties[7]);

// Paths are 0 stepwise, 1 resident, 2 cooperative, 3 cluster. Cells, passes and number types count
// as in their enums. What a function is told and does not know it answers with -1.

// For tests: the path that all calls take; -1 the fastest again.
int rotcell_cuda_force_path(int path);

// The same for the calling thread: what runs in a check is not checked again.
int rotcell_cuda_force_path_of_thread(int path);

// Whether a path may be taken at all.
int rotcell_cuda_allow_path(int path, int allowed);

// The path that is checked or switched off, and the call that it is about to be used for.
struct RotcellPathUse {
  int device, cell, pass, number, path;
  int option;  // 0 none, 1 a projection, 2 changes of the state
  int64_t hidden, batch, steps;
};

int rotcell_cuda_switch_off(const struct RotcellPathUse* use);
int rotcell_cuda_is_switched_off(const struct RotcellPathUse* use);

// Called before a path's first use, on the thread that uses it. The answer is null if the call may
// go on, by this path or, if it has been switched off, another; otherwise the text of an error,
// which is read before the next check of the thread.
typedef const char* (*RotcellCheck)(const struct RotcellPathUse* use);

// Null: paths are not checked.
void rotcell_cuda_set_check(RotcellCheck check);

// For tests: as if no path had been used.
void rotcell_cuda_forget_checks(void);

// CUDA graphs of the stepwise path: step_graphs.h says what these two do. `capture` answers null,
// or the text of an error, which is read before the thread captures again.
typedef int64_t (*RotcellProductSettings)(void);
typedef const char* (*RotcellRun)(void* context);
typedef const char* (*RotcellCapture)(const struct RotcellPathUse* use, RotcellRun run,
                                      void* context);

// Null, both: no graphs, and those that are there go.
void rotcell_cuda_set_graphs(RotcellProductSettings settings, RotcellCapture capture);

// Graphs and bytes of their buffers now; graphs captured and sequences run by them so far.
void rotcell_cuda_graph_statistics(int64_t numbers[4]);
}
