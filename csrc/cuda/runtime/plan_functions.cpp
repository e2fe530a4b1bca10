#include "cuda/runtime/plan_functions.h"

#include <iterator>
#include <optional>

#include "cuda/runtime/known_devices.h"
#include "cuda/runtime/plan.h"

#define ROTCELL_EXPORTED extern "C" __attribute__((visibility("default")))

namespace rotcell::cuda {
namespace {

DeviceProperties read_properties(const int64_t* properties) {
  DeviceProperties device;
#define ROTCELL_READ(type, name) device.name = static_cast<type>(*properties++);
  ROTCELL_DEVICE_PROPERTIES(ROTCELL_READ)
#undef ROTCELL_READ
  return device;
}

// What describes a plan: X(name).
#define ROTCELL_PLAN_FIELDS(X) \
  X(path)                      \
  X(rows_per_block)            \
  X(units_per_block)           \
  X(tile_groups)               \
  X(staged_bytes)              \
  X(cluster)                   \
  X(tensor_cores)              \
  X(blocks)                    \
  X(threads)                   \
  X(shared_bytes)

}  // namespace

void write_properties(const DeviceProperties& device, int64_t properties[]) {
#define ROTCELL_WRITE(type, name) *properties++ = device.name;
  ROTCELL_DEVICE_PROPERTIES(ROTCELL_WRITE)
#undef ROTCELL_WRITE
}

}  // namespace rotcell::cuda

namespace cuda = rotcell::cuda;

ROTCELL_EXPORTED const char* rotcell_cuda_property_names() {
#define ROTCELL_NAME(type, name) "," #name
  return &ROTCELL_DEVICE_PROPERTIES(ROTCELL_NAME)[1];
#undef ROTCELL_NAME
}

ROTCELL_EXPORTED const char* rotcell_cuda_known_device(int index, int64_t properties[]) {
  if (index < 0 || index >= static_cast<int>(std::size(cuda::known_devices))) return nullptr;
  const cuda::KnownDevice& device = cuda::known_devices[index];
  cuda::write_properties(device.properties, properties);
  return device.name.data();  // a literal, so it ends with a null
}

ROTCELL_EXPORTED int rotcell_cuda_has_cell(int cell) {
  return rotcell::kCells[cell].stepwise ? 1 : 0;
}

ROTCELL_EXPORTED const char* rotcell_cuda_plan_fields() {
#define ROTCELL_NAME(name) "," #name
  return &ROTCELL_PLAN_FIELDS(ROTCELL_NAME)[1];
#undef ROTCELL_NAME
}

ROTCELL_EXPORTED int rotcell_cuda_plan(const RotcellRequest* request, const int64_t properties[],
                                       int64_t fields[]) {
  if (!rotcell::kCells[request->cell].stepwise) return -1;
  const cuda::Request asked{request->cell,           static_cast<cuda::Pass>(request->pass),
                            request->hidden,         request->batch,
                            request->steps,          static_cast<cuda::Number>(request->number),
                            request->projection != 0};
  const cuda::DeviceProperties device = cuda::read_properties(properties);
  const std::optional<cuda::Plan> plan =
      request->path < 0 ? cuda::choose_plan(asked, device)
                        : cuda::plan_path(static_cast<cuda::Path>(request->path), asked, device);
  if (!plan) return -1;
#define ROTCELL_WRITE(name) *fields++ = static_cast<int64_t>(plan->name);
  ROTCELL_PLAN_FIELDS(ROTCELL_WRITE)
#undef ROTCELL_WRITE
  return 0;
}
