// What NVIDIA's driver says about the GPUs of this host, through libnvidia-ml.so.1, which is opened
// when there is one: this program needs no CUDA to build or to run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::agent {

struct Gpu {
  std::string uuid;     // "GPU-8f1c..."
  std::string product;  // "NVIDIA H200"
  int64_t memory_bytes = 0;
  int island = 0;  // GPUs of one number reach each other over NVLink; 0: it has none
};

// Not thread-safe.
class Nvml {
 public:
  // NOT_FOUND where the library is not there; UNAVAILABLE where the driver does not answer.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();

  absl::StatusOr<std::vector<Gpu>> ListGpus();
  // Pids that compute on the GPU.
  absl::StatusOr<std::vector<int64_t>> ComputeProcesses(const std::string& uuid);

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<Functions> functions);

  void* const library_;
  const std::unique_ptr<Functions> functions_;
};

// Numbers what is linked from 1 in the order of the items, and gives 0 to what has no link. Links
// through a third item count: rings and trees stay on them.
std::vector<int> NumberIslands(int count, const std::function<bool(int, int)>& linked);

// The device type of a product: "NVIDIA H200" is "h200", "NVIDIA GeForce GTX 1080 Ti"
// "gtx-1080-ti", "NVIDIA H100 80GB HBM3" "h100".
std::string DeviceTypeOf(const std::string& product);

}  // namespace trainyard::agent
