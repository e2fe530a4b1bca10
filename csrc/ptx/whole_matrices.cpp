// wmma: 16 x 16 matrices that the lanes of a warp load, multiply and store together. PTX leaves it
// open which lane holds what; here they have the rows one after the other, and begin again with the
// first where there is room for more. The kernels of today have none: build_tools/count_history.py.
#include <cstring>
#include <string>
#include <vector>

#include "ptx/half_values.h"
#include "ptx/operations.h"
#include "ptx/warp.h"
#include "simt/tile_layout.h"

namespace rotcell::ptx {
namespace {

using simt::Place;

constexpr int side = 16;
constexpr size_t sums_of_lane = side * side / warp_size;

Place place_in_fragment(int lane, size_t element, size_t of_lane) {
  const int index =
      static_cast<int>((static_cast<size_t>(lane) * of_lane + element) % (side * side));
  return {index / side, index % side};
}

enum class Space { shared, generic };

// use(line, piece, place) for each piece of 16 bytes of the rows, or columns, in memory.
template <Space space, class T, class Use>
void for_pieces(const Warp& warp, const Operand& address, const Operand& stride, Use use) {
  const uint64_t begin = warp.address(address, 0);
  const uint32_t elements = warp.from<uint32_t>(stride)[0];
  for (int lane = 1; lane < warp_size; ++lane) {
    if (warp.address(address, lane) != begin || warp.from<uint32_t>(stride)[lane] != elements)
      warp.fail("lanes that mean different matrices");
  }
  if (begin % 32 != 0 || elements * sizeof(T) % 16 != 0) warp.fail("a misaligned matrix");
  for (size_t line = 0; line < side; ++line) {
    for (size_t piece = 0; piece < side * sizeof(T) / 16; ++piece) {
      const uint64_t at = begin + line * elements * sizeof(T) + piece * 16;
      use(line, piece, space == Space::shared ? warp.shared(at, 16) : warp.generic(at, 16));
    }
  }
}

enum class Order { rows, columns };

// Two numbers in each of the registers.
template <Space space, Order order, size_t registers>
void run_load(Warp& warp, const Instruction& instruction, uint32_t active) {
  warp.need_all_lanes(active);
  const auto& operands = instruction.operands;
  uint16_t lines[side][side];
  for_pieces<space, uint16_t>(warp, operands[registers], operands[registers + 1],
                              [&](size_t line, size_t piece, const unsigned char* from) {
                                std::memcpy(&lines[line][piece * 16 / sizeof(uint16_t)], from, 16);
                              });
  for (int lane = 0; lane < warp_size; ++lane) {
    for (size_t i = 0; i < 2 * registers; ++i) {
      const auto [row, column] = place_in_fragment(lane, i, 2 * registers);
      const uint32_t number = order == Order::rows ? lines[row][column] : lines[column][row];
      uint32_t& to = warp.to<uint32_t>(operands[i / 2])[lane];
      to = i % 2 == 0 ? number : to | number << 16;
    }
  }
}

void run_store(Warp& warp, const Instruction& instruction, uint32_t active) {
  warp.need_all_lanes(active);
  const auto& operands = instruction.operands;
  uint32_t rows[side][side];
  for (int lane = 0; lane < warp_size; ++lane) {
    for (size_t i = 0; i < sums_of_lane; ++i) {
      const auto [row, column] = place_in_fragment(lane, i, sums_of_lane);
      rows[row][column] = warp.from<float>(operands[i + 1])[lane];
    }
  }
  for_pieces<Space::shared, float>(warp, operands[0], operands[sums_of_lane + 1],
                                   [&](size_t row, size_t piece, unsigned char* to) {
                                     std::memcpy(to, &rows[row][piece * 16 / sizeof(float)], 16);
                                   });
}

// D = A B + C. Sums are float32, in the order of the columns of A, as those of mma.
template <size_t registers, float (*value)(uint16_t)>
void run_multiply(Warp& warp, const Instruction& instruction, uint32_t active) {
  warp.need_all_lanes(active);
  const auto& operands = instruction.operands;
  constexpr size_t first_a = sums_of_lane, first_b = first_a + registers;
  constexpr size_t first_c = first_b + registers;
  const auto element = [&](size_t first, size_t i, int lane) {
    const uint32_t two = warp.from<uint32_t>(operands[first + i / 2])[lane];
    return value(static_cast<uint16_t>(two >> 16 * (i % 2)));
  };
  float a[side][side], b[side][side], sums[side][side];
  for (int lane = 0; lane < warp_size; ++lane) {
    for (size_t i = 0; i < 2 * registers; ++i) {
      const auto [row, column] = place_in_fragment(lane, i, 2 * registers);
      a[row][column] = element(first_a, i, lane);
      b[row][column] = element(first_b, i, lane);
    }
    for (size_t i = 0; i < sums_of_lane; ++i) {
      const auto [row, column] = place_in_fragment(lane, i, sums_of_lane);
      sums[row][column] = std::bit_cast<float>(warp.from<float>(operands[first_c + i])[lane]);
    }
  }
  for (int row = 0; row < side; ++row) {
    for (int k = 0; k < side; ++k) {
      for (int column = 0; column < side; ++column)
        sums[row][column] += a[row][k] * b[k][column];  // the product is exact
    }
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    for (size_t i = 0; i < sums_of_lane; ++i) {
      const auto [row, column] = place_in_fragment(lane, i, sums_of_lane);
      warp.to<float>(operands[i])[lane] = std::bit_cast<uint32_t>(sums[row][column]);
    }
  }
}

template <Space space, Order order, size_t registers>
Operation load() {
  std::vector<Width> operands(registers + 2, Width::four);
  operands[registers] = Width::either;
  return {run_load<space, order, registers>, Kind::shared, operands, registers};
}

template <size_t registers, float (*value)(uint16_t)>
Operation multiply() {
  return {run_multiply<registers, value>, Kind::mma,
          std::vector<Width>(2 * sums_of_lane + 2 * registers, Width::four), sums_of_lane};
}

}  // namespace

void add_whole_matrices(Operations& o) {
  const std::string rows = ".sync.aligned.row.m16n16k16.", columns = ".sync.aligned.col.m16n16k16.";
  o["wmma.load.a" + rows + "shared.f16"] = load<Space::shared, Order::rows, 8>();
  o["wmma.load.b" + columns + "shared.f16"] = load<Space::shared, Order::columns, 8>();
  o["wmma.load.a" + rows + "bf16"] = load<Space::generic, Order::rows, 4>();
  o["wmma.load.b" + columns + "bf16"] = load<Space::generic, Order::columns, 4>();
  o["wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"] = multiply<8, half_value>();
  o["wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32"] = multiply<4, bfloat16_value>();
  std::vector<Width> stored(sums_of_lane + 2, Width::four);
  stored[0] = Width::either;
  o["wmma.store.d" + rows + "shared.f32"] = {run_store, Kind::shared, stored, 0};
}

}  // namespace rotcell::ptx
