#define ROTCELL_ISA generic
#include "cpu/loops/kernels_impl.h"

namespace rotcell::cpu {

constinit const InstructionSet generic_set{generic::make_kernels<float>("generic"),
                                           generic::make_kernels<double>("generic")};

}  // namespace rotcell::cpu
