// GPUs by name, for tests that pose as one of them.
#pragma once

#include <string_view>

#include "cuda/platform/device.h"

namespace rotcell::cuda {

struct KnownDevice {
  std::string_view name;
  DeviceProperties properties;
};

// compute capability, multiprocessors, shared bytes per block and per multiprocessor, threads per
// multiprocessor, cooperative launch, largest cluster
inline constexpr KnownDevice known_devices[] = {
    {"T4", {75, 40, 64 * 1024, 64 * 1024, 1024, true, 1}},
    {"A100", {80, 108, 163 * 1024, 164 * 1024, 2048, true, 1}},
    {"RTX 4090", {89, 128, 99 * 1024, 100 * 1024, 1536, true, 1}},
    {"H100", {90, 132, 227 * 1024, 228 * 1024, 2048, true, 16}},
};

// Null if there is none of that name.
constexpr const DeviceProperties* find_known_device(std::string_view name) {
  for (const KnownDevice& device : known_devices)
    if (device.name == name) return &device.properties;
  return nullptr;
}

}  // namespace rotcell::cuda
