// Ops in a child process made by fork().
#pragma once

#include "cpu/runtime/function_ref.h"

namespace rotcell::cpu {

// Runs body. In a child made by fork(), the thread that called fork() still believes in OpenMP's
// threads, which are gone, and would wait for them forever: there a separate thread runs it.
void run_safely_after_fork(FunctionRef<void()> body);

}  // namespace rotcell::cpu
