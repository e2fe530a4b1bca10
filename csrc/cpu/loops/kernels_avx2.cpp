#define ROTCELL_ISA avx2
#include "cpu/loops/kernels_impl.h"

namespace rotcell::cpu {

constinit const Kernels<float> avx2_float_kernels = avx2::make_kernels<float>("avx2");
constinit const Kernels<double> avx2_double_kernels = avx2::make_kernels<double>("avx2");

}  // namespace rotcell::cpu
