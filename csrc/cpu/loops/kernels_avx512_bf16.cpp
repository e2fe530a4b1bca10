#define ROTCELL_ISA avx512_bf16
#include "cpu/loops/kernels_impl.h"

namespace rotcell::cpu {

// What is not bfloat16 runs as with avx512.
constinit const Kernels<BFloat16> avx512_bf16_bfloat16_kernels =
    avx512_bf16::make_kernels<BFloat16>("avx512_bf16");

}  // namespace rotcell::cpu
