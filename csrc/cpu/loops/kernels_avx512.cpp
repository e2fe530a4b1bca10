#define ROTCELL_ISA avx512
#include "cpu/loops/kernels_impl.h"

namespace rotcell::cpu {

constinit const InstructionSet avx512_set{avx512::make_kernels<float>("avx512"),
                                          avx512::make_kernels<double>("avx512")};

}  // namespace rotcell::cpu
