// The GPU backend, for programs that hold it: see RegisterBackend (backend.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/backend/backend.h"

namespace trainyard::engine {

// Of what a library can do in one kernel, and two could.
enum class Fusions {
  kWhereFaster,  // as measured; not at all where nothing is measured
  kAlways,
  kNever,
};

struct CudaBackendOptions {
  // Where the choices among cuDNN's plans are kept; empty: nowhere.
  std::string plan_cache_path = {};
  // Measures candidates of plans and products; else the library's first guess is taken.
  bool autotunes = true;
  // The statistics of a batch norm summed up by the convolution before it.
  Fusions fusions = Fusions::kWhereFaster;
  // cuDNN's description of a device in JSON: plans for it, where there may be none, and runs
  // nothing.
  std::string device_description = {};
};

// The current device: cuDNN, cuBLASLt and our own kernels. UNAVAILABLE, with what to do about it,
// where there is no GPU or no driver and no description either.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

}  // namespace trainyard::engine
