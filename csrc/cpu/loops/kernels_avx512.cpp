#define ROTCELL_ISA avx512
#include "cpu/loops/kernels_impl.h"

namespace rotcell::cpu {

constinit const Kernels<float> avx512_float_kernels = avx512::make_kernels<float>("avx512");
constinit const Kernels<double> avx512_double_kernels = avx512::make_kernels<double>("avx512");

}  // namespace rotcell::cpu
