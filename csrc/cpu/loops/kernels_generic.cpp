#define ROTCELL_ISA generic
#include "cpu/loops/kernels_impl.h"
#include "cpu/runtime/instruction_set.h"

namespace rotcell::cpu {

constinit const Kernels<float> generic_float_kernels = generic::make_kernels<float>(kBaselineSet);
constinit const Kernels<double> generic_double_kernels =
    generic::make_kernels<double>(kBaselineSet);
// Emulates the instructions for bfloat16, for tests on any machine.
constinit const Kernels<BFloat16> generic_bfloat16_kernels =
    generic::make_kernels<BFloat16>("generic_bf16");

}  // namespace rotcell::cpu
