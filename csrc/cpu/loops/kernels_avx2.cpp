#define ROTCELL_ISA avx2
#include "cpu/loops/kernels_impl.h"

namespace rotcell::cpu {

constinit const InstructionSet avx2_set{avx2::make_kernels<float>("avx2"),
                                        avx2::make_kernels<double>("avx2")};

}  // namespace rotcell::cpu
