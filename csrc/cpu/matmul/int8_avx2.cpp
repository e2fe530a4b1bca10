#define ROTCELL_ISA int8_isa_avx2
#include "cpu/matmul/int8_impl.h"

namespace rotcell::cpu {

constinit const Int8Kernels int8_avx2 = int8_isa_avx2::make_int8_kernels("avx2");

}  // namespace rotcell::cpu
