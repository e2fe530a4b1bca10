// The values of 16-bit floating-point numbers.
#pragma once

#include <bit>
#include <cstdint>

#include "emulator/half.h"

namespace rotcell::ptx {

using emulator::half_value;

inline float bfloat16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace rotcell::ptx
