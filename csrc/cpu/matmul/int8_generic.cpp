#define ROTCELL_ISA int8_isa_generic
#include "cpu/matmul/int8_impl.h"

namespace rotcell::cpu {

constinit const Int8Kernels int8_generic = int8_isa_generic::make_int8_kernels("generic");

}  // namespace rotcell::cpu
