// What tests may ask of the emulator.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cuda/platform/device.h"

namespace rotcell::emulator {

// In which order threads and blocks run where CUDA leaves it open.
enum class Order { forward, reverse, random };

// A seed makes the same random choices in every launch from here on.
void set_order(Order order, uint64_t seed = 0);

// The device that launches run on and that cuda::device_properties returns. At first an H100.
void pose_as(const cuda::DeviceProperties& device);

// What cuda::is_capturing returns: whether a CUDA graph is being captured. False at first.
void pretend_capture(bool capturing);

// Launches since the start or the last reset_launches, all and by kernel name.
int64_t launches();
std::map<std::string, int64_t> launches_by_kernel();
void reset_launches();

}  // namespace rotcell::emulator
