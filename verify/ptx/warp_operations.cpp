// Operations in which lanes of a warp see what others hold.
#include <cstring>

#include "emulator/tile_layout.h"
#include "ptx/half_values.h"
#include "ptx/operations.h"
#include "ptx/warp.h"

namespace rotcell::ptx {
namespace {

using emulator::elements_of_c;
using emulator::Place;

// shfl.sync.bfly.b32 d|p, a, b, c, members: from the lane whose number differs in the bits of b, if
// it is not beyond the one that c allows.
void run_butterfly(Warp& warp, const Instruction& instruction, uint32_t active) {
  const auto& operands = instruction.operands;
  uint32_t values[warp_size];
  std::memcpy(values, warp.from<uint32_t>(operands[2]), sizeof values);
  const uint32_t* bits = warp.from<uint32_t>(operands[3]);
  const uint32_t* clamp = warp.from<uint32_t>(operands[4]);
  const uint32_t* members = warp.from<uint32_t>(operands[5]);
  uint32_t* to = warp.to<uint32_t>(operands[0]);
  uint32_t& in_range = warp.mask_to(operands[1]);
  for_lanes(active, [&](int lane) {
    if ((members[lane] & warp.present) != active)
      warp.fail("a shuffle among lanes that are not there");
    const uint32_t own = static_cast<uint32_t>(lane), segment = clamp[lane] >> 8 & 31;
    const uint32_t last = (own & segment) | (clamp[lane] & 31 & ~segment);
    const uint32_t source = own ^ (bits[lane] & 31);
    const bool reaches = source <= last;
    if (reaches && (active >> source & 1) == 0)
      warp.fail("a shuffle from a lane that is not there");
    to[lane] = values[reaches ? source : own];
    in_range = (in_range & ~(1u << lane)) | static_cast<uint32_t>(reaches) << lane;
  });
}

// ldmatrix...x4: eight lanes after the other have the addresses of the rows of a matrix.
void run_load_matrices(Warp& warp, const Instruction& instruction, uint32_t active) {
  warp.need_all_lanes(active);
  const unsigned char* rows[warp_size];
  for (int lane = 0; lane < warp_size; ++lane)
    rows[lane] = warp.shared(warp.address(instruction.operands[4], lane), 16, Access::read);
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint32_t* to = warp.to<uint32_t>(instruction.operands[static_cast<size_t>(matrix)]);
    for (int lane = 0; lane < warp_size; ++lane) {
      const Place first = emulator::place_in_matrix(lane, 0);
      std::memcpy(&to[lane], rows[8 * matrix + first.row] + first.column * 2, sizeof *to);
    }
  }
}

// mma...m16n8k<depth>: D = A B + C. A and B of depth 8 are the first halves of those of depth 16.
// Sums are float32, in the order of the columns; how a GPU rounds and orders them is not laid down.
template <int depth, float (*value)(uint16_t)>
void run_multiply(Warp& warp, const Instruction& instruction, uint32_t active) {
  warp.need_all_lanes(active);
  constexpr size_t registers_of_a = depth / 4, registers_of_b = depth / 8;
  constexpr size_t first_a = elements_of_c, first_b = first_a + registers_of_a;
  constexpr size_t first_c = first_b + registers_of_b;
  const auto element = [&](size_t first, int element_index, int lane) {
    const Operand& operand = instruction.operands[first + static_cast<size_t>(element_index) / 2];
    const uint32_t two = warp.from<uint32_t>(operand)[lane];
    return value(static_cast<uint16_t>(two >> 16 * (element_index % 2)));
  };
  float a[16][depth], b[depth][8], sums[16][8];
  for (int lane = 0; lane < warp_size; ++lane) {
    for (int i = 0; i < int{2 * registers_of_a}; ++i) {
      const Place place = emulator::place_in_a(lane, i);
      a[place.row][place.column] = element(first_a, i, lane);
    }
    for (int i = 0; i < int{2 * registers_of_b}; ++i) {
      const Place place = emulator::place_in_b(lane, i);
      b[place.row][place.column] = element(first_b, i, lane);
    }
    for (int i = 0; i < elements_of_c; ++i) {
      const Place place = emulator::place_in_c(lane, i);
      sums[place.row][place.column] = std::bit_cast<float>(
          warp.from<float>(instruction.operands[first_c + static_cast<size_t>(i)])[lane]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < 8; ++column)
        sums[row][column] += a[row][k] * b[k][column];  // the product is exact
    }
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    for (int i = 0; i < elements_of_c; ++i) {
      const Place place = emulator::place_in_c(lane, i);
      warp.to<float>(instruction.operands[static_cast<size_t>(i)])[lane] =
          std::bit_cast<uint32_t>(sums[place.row][place.column]);
    }
  }
}

template <int depth, float (*value)(uint16_t)>
Operation multiply() {
  return {run_multiply<depth, value>, Kind::mma,
          std::vector<Width>(2 * elements_of_c + depth / 4 + depth / 8, Width::four),
          elements_of_c};
}

}  // namespace

void add_warp_operations(Operations& o) {
  const Width four = Width::four;
  o["shfl.sync.bfly.b32"] = {
      run_butterfly, Kind::shared, {four, Width::predicate, four, four, four, four}, 2};
  o["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {
      run_load_matrices, Kind::shared, {four, four, four, four, Width::either}, 4};
  o["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"] = multiply<8, half_value>();
  o["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = multiply<16, half_value>();
  o["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = multiply<16, bfloat16_value>();
}

}  // namespace rotcell::ptx
