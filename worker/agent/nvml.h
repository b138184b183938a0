// Asks NVIDIA's driver about the GPUs of this host, through libnvidia-ml.so.1, which is opened
// when there is one: this program needs no CUDA to build or to run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::agent {

// The facts about a GPU that do not change while the driver is loaded.
struct Gpu {
  std::string uuid;     // "GPU-8f1c..."
  std::string product;  // "NVIDIA H200"
  int64_t memory_bytes = 0;
  int island = 0;               // GPUs of one number reach each other over NVLink; 0: it has none
  std::string pci_bus_id = {};  // "00000000:3B:00.0"; empty where unknown
  std::string compute_capability = {};  // "9.0"; empty where unknown
};

// A GPU at one moment. What its driver cannot tell, or tells for other GPUs only, is absent.
struct GpuReading {
  std::optional<int64_t> memory_used_bytes = {};
  std::optional<int64_t> memory_free_bytes = {};
  std::optional<double> utilization = {};         // [0, 1]: time in which a kernel ran
  std::optional<double> memory_utilization = {};  // [0, 1]: time in which memory was accessed
  std::optional<double> temperature_celsius = {};
  std::optional<double> power_watts = {};
  std::optional<double> power_limit_watts = {};
  std::optional<int64_t> sm_clock_mhz = {};
  std::optional<int64_t> memory_clock_mhz = {};
  std::optional<uint64_t> throttle_reasons = {};  // nvmlClocksThrottleReasons; see SlowedBy
  std::optional<bool> ecc_enabled = {};
  std::optional<int64_t> uncorrected_ecc_errors = {};  // since the driver was loaded
  std::optional<int64_t> lifetime_ecc_errors = {};     // uncorrected, of the GPU's whole life
  // Memory rows (Ampere and newer) or pages that wait for a reset to be replaced, and rows for
  // which no spare was left.
  std::optional<bool> is_remap_pending = {};
  std::optional<bool> has_remap_failed = {};
  std::optional<bool> is_retirement_pending = {};
  // Pids that compute on it, as the driver numbers them: from inside a container they may mean
  // nothing, or be 0.
  std::optional<std::vector<int64_t>> processes = {};
};

// An error that the driver has logged for a GPU.
struct XidEvent {
  std::string uuid;
  int64_t xid = 0;

  friend bool operator==(const XidEvent&, const XidEvent&) = default;
};

// Not thread-safe.
class Nvml {
 public:
  // NOT_FOUND where the library is not there; UNAVAILABLE where the driver does not answer. What
  // an older driver's library lacks is absent from the readings.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();

  // All GPUs that answer; one that does not is left out and takes no other along. Their errors are
  // collected from now on. UNAVAILABLE where the driver does not answer at all.
  absl::StatusOr<std::vector<Gpu>> ListGpus();
  // NOT_FOUND where the GPU is gone, DATA_LOSS where the driver has lost it, UNAVAILABLE where
  // something else keeps it from answering.
  absl::StatusOr<GpuReading> Read(const std::string& uuid);
  // Errors since the last call, in their order; at most kXidsMax of them. Never waits.
  std::vector<XidEvent> TakeXids();
  // Collects the errors of a GPU that was away.
  void Watch(const std::string& uuid);
  // "570.86.10"; empty where it cannot be told.
  std::string DriverVersion();

  static constexpr int kXidsMax = 256;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<Functions> functions);

  void* const library_;
  const std::unique_ptr<Functions> functions_;
  void* events_ = nullptr;  // null: the library collects none
  // A lost GPU may no longer tell its name.
  std::map<void*, std::string> watched_;
};

}  // namespace trainyard::agent
