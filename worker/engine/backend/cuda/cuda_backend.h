// Declares the GPU backend. Programs that contain it register it with RegisterBackend.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cuda/fusions.h"
#include "worker/engine/backend/cuda/runtime/device_allocator.h"
#include "worker/engine/backend/cuda/tuning/plan_record.h"

namespace trainyard::engine {

struct CudaBackendOptions {
  // The folder in which the choices among cuDNN's plans are kept. If it is empty, they are not
  // kept.
  std::string plan_cache_folder = {};
  // Candidates for plans and products are measured; otherwise the library's first proposal is
  // taken.
  bool autotunes = true;
  // The records must outlive the backend.
  cuda::PlanScrutiny scrutiny = {};
  // Says if convolutions take over work of the batch norms around them (conv_plans.h).
  Fusions fusions = Fusions::kWhereFaster;
  // Memory for sums that other ranks of this host may read (CompileOptions::shares_memory). If it
  // is not given, they are in ordinary memory.
  cuda::DeviceAllocator shared_memory = {};
  // cuDNN's description of a device in JSON. The backend then plans for that device, whether or not
  // it is present, and runs nothing.
  std::string device_description = {};
  // The major number of the described device's compute capability; 0 if it is unknown.
  int described_capability = 0;
};

// Makes a backend that uses cuDNN, cuBLASLt and our own kernels on the current device. Returns
// UNAVAILABLE, with what to do about it, if there is no GPU or no driver, and no description
// either.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

}  // namespace trainyard::engine
