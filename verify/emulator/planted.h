// Faults that tests plant into launches, to see who notices.
#pragma once

#include <string>

namespace rotcell::emulator {

enum class Fault {
  fails_to_launch,
  does_nothing,  // what the kernel should write stays as it is
  hangs,         // until remove_faults
};

// From here on every launch of a kernel whose name begins so has that fault.
void plant_fault(const std::string& kernel, Fault fault);

// All faults are gone, and kernels that hang run.
void remove_faults();

enum class Launch { runs, fails, does_nothing };

// What a launch comes to. Waits while it hangs.
Launch meet_planted_fault(const std::string& kernel);

}  // namespace rotcell::emulator
