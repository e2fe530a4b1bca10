#define ROTCELL_ISA int8_isa_avx512_vnni
#include "cpu/matmul/int8_impl.h"

namespace rotcell::cpu {

constinit const Int8Kernels int8_avx512_vnni =
    int8_isa_avx512_vnni::make_int8_kernels("avx512_vnni");

}  // namespace rotcell::cpu
