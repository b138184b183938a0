// Another way to allocate memory of the device than the runtime's.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/statusor.h"

namespace trainyard::engine::cuda {

// Allocates memory of the current device, which need not be cleared.
struct DeviceAllocator {
  std::function<absl::StatusOr<void*>(size_t bytes)> allocate = nullptr;
  std::function<void(void* memory)> free = nullptr;
};

}  // namespace trainyard::engine::cuda
