// Which lane of a warp holds what of the tiles of mma.m16n8k16 and of the 8 x 8 matrices of
// ldmatrix, as the PTX ISA lays it down. Elements of a lane are numbered from its first register
// on, the low half of a register before the high one.
#pragma once

namespace rotcell::emulator {

struct Place {
  int row, column;
};

// Four lanes have a row of 8 elements, two each.
constexpr Place place_in_matrix(int lane, int element) {
  return {lane / 4, lane % 4 * 2 + element};
}

// A [16, 16] is four 8 x 8 matrices: upper and lower left, then upper and lower right.
inline constexpr int elements_of_a = 8;
constexpr Place place_in_a(int lane, int element) {
  const int matrix = element / 2;
  const Place place = place_in_matrix(lane, element % 2);
  return {place.row + matrix % 2 * 8, place.column + matrix / 2 * 8};
}

// B [16, 8] is two of them, one above the other, by columns.
inline constexpr int elements_of_b = 4;
constexpr Place place_in_b(int lane, int element) {
  const Place place = place_in_matrix(lane, element % 2);
  return {place.column + element / 2 * 8, place.row};
}

// C [16, 8], the sums: two, one above the other.
inline constexpr int elements_of_c = 4;
constexpr Place place_in_c(int lane, int element) {
  const Place place = place_in_matrix(lane, element % 2);
  return {place.row + element / 2 * 8, place.column};
}

}  // namespace rotcell::emulator
