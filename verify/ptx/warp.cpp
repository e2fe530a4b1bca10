#include "ptx/warp.h"

#include <algorithm>
#include <stdexcept>

#if defined(__SANITIZE_ADDRESS__)  // all that must be compiled with it is this file
#include <sanitizer/asan_interface.h>
#endif

namespace rotcell::ptx {
namespace {

uint32_t lowest_lanes(unsigned count) {
  return count >= warp_size ? 0xffffffff : (1u << count) - 1;
}

}  // namespace

Warp::Warp(Block& of, unsigned in_block, uint32_t place_among, size_t alive, uint32_t* registers)
    : block(of),
      index(in_block),
      present(lowest_lanes(of.launch->grid.threads - in_block * warp_size)),
      fragments{{0, present}},
      clock(alive),
      id(of.launch->first_warp + place_among),
      place(place_among),
      registers_(registers) {
  tick();
  const Kernel& kernel = *block.launch->kernel;
  // In every float type, bytes of ones are a NaN: what is read before it is written will show.
  std::fill_n(registers_, kernel.words, 0xffffffff);
  for (const auto& [special, operand] : kernel.specials) {
    for (int lane = 0; lane < warp_size; ++lane)
      to<uint32_t>(operand)[lane] = value_of(special, static_cast<unsigned>(lane));
  }
}

uint32_t Warp::value_of(Special special, unsigned lane) const {
  const Launch& launch = *block.launch;
  switch (special) {
    case Special::thread:
      return index * warp_size + lane;
    case Special::block:
      return block.index;
    case Special::threads:
      return launch.grid.threads;
    case Special::blocks:
      return launch.grid.blocks;
    case Special::zero:
      return 0;
    case Special::one:
      return 1;
  }
  __builtin_unreachable();
}

void Warp::fail(const std::string& what) const {
  const Kernel& kernel = *block.launch->kernel;
  const int line =
      fragments.empty()
          ? 0
          : kernel.instructions[static_cast<size_t>(fragments.back().instruction)].line;
  throw std::runtime_error("rotcell: CUDA kernel " + std::string(block.launch->name) + ": " + what +
                           ", at " + kernel.file + ":" + std::to_string(line) + ", block " +
                           std::to_string(block.index) + ", warp " + std::to_string(index));
}

void Warp::need_all_lanes(uint32_t active) const {
  if (active != 0xffffffff) fail("not all lanes of the warp take part");
}

unsigned char* Warp::shared(uint64_t address, size_t bytes) const {
  if (address % bytes != 0) fail("misaligned address in shared memory");
  if (address > block.shared.size() || bytes > block.shared.size() - address)
    fail("an access beyond shared memory");
  return const_cast<unsigned char*>(block.shared.data()) + address;
}

unsigned char* Warp::global(uint64_t address, size_t bytes) const {
  if (address % bytes != 0) fail("misaligned address in global memory");
  auto* memory = reinterpret_cast<unsigned char*>(address);
#if defined(__SANITIZE_ADDRESS__)
  if (__asan_region_is_poisoned(memory, bytes)) fail("an access beyond global memory");
#endif
  return memory;
}

const unsigned char* Warp::parameter(uint64_t address, size_t bytes) const {
  const size_t size = block.launch->kernel->parameter_bytes;
  if (address > size || bytes > size - address) fail("an access beyond the parameters");
  return block.launch->parameters + address;
}

}  // namespace rotcell::ptx
