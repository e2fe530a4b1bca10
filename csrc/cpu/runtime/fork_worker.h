// Ops in a child process made by fork().
#pragma once

#include "cpu/runtime/function_ref.h"

namespace rotcell::cpu {

// Runs body. In a child of fork(), OpenMP's threads are gone, but the thread that called fork()
// would wait for them forever. There, a separate thread runs body.
void run_safely_after_fork(FunctionRef<void()> body);

}  // namespace rotcell::cpu
