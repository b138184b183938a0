// Asks NVIDIA's driver about the GPUs of this host, through libnvidia-ml.so.1. The library is
// opened at run time if it exists, so this program needs no CUDA to build or to run.
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

struct NvmlFunctions;

// The facts about a GPU that do not change while the driver is loaded. An instance of a GPU that is
// divided (MIG) counts as a GPU of its own.
struct Gpu {
  std::string uuid;     // "GPU-8f1c...", or "MIG-8f1c..." for an instance
  std::string product;  // "NVIDIA H200", or "NVIDIA H200 MIG 1g.18gb"
  int64_t memory_bytes = 0;
  // GPUs with the same number reach each other over NVLink; 0 if it has none.
  int island = 0;
  std::string pci_bus_id = {};          // "00000000:3B:00.0"; empty if unknown
  std::string compute_capability = {};  // "9.0"; empty if unknown
};

// A GPU at one moment. A value that its driver cannot tell, or tells only for other GPUs, is unset.
// Temperature, clocks and memory errors of an instance are those of the whole card.
struct GpuReading {
  std::optional<int64_t> memory_used_bytes = {};
  std::optional<int64_t> memory_free_bytes = {};
  std::optional<double> utilization = {};  // [0, 1]: the share of time in which a kernel ran
  // [0, 1]: the share of time in which memory was accessed.
  std::optional<double> memory_utilization = {};
  std::optional<double> temperature_celsius = {};
  std::optional<double> power_watts = {};
  std::optional<double> power_limit_watts = {};
  std::optional<int64_t> sm_clock_mhz = {};
  std::optional<int64_t> memory_clock_mhz = {};
  std::optional<uint64_t> throttle_reasons = {};  // nvmlClocksThrottleReasons; see SlowedBy
  std::optional<bool> ecc_enabled = {};
  std::optional<int64_t> uncorrected_ecc_errors = {};  // since the driver was loaded
  std::optional<int64_t> lifetime_ecc_errors = {};     // uncorrected, over the GPU's whole life
  // Memory rows (Ampere and newer) or pages that wait for a reset to be replaced, and rows for
  // which no spare was left.
  std::optional<bool> is_remap_pending = {};
  std::optional<bool> has_remap_failed = {};
  std::optional<bool> is_retirement_pending = {};
  // Pids of processes that compute on it, as the driver numbers them. Inside a container they may
  // mean nothing, or be 0.
  std::optional<std::vector<int64_t>> processes = {};
};

// An error that the driver has logged for a GPU.
struct XidEvent {
  std::string uuid;
  int64_t xid = 0;

  friend bool operator==(const XidEvent&, const XidEvent&) = default;
};

// The library. The class is not thread-safe.
class Nvml {
 public:
  // Opens the library. Returns NOT_FOUND if it does not exist, and UNAVAILABLE if the driver does
  // not answer. Values that an older driver's library does not offer are unset in the readings.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();

  // Returns all GPUs that answer. Of a GPU that is divided, returns the instances; if it has none,
  // nothing can run on it, and it is left out with a warning that says so. A GPU that does not
  // answer is left out and does not affect the others. Their errors are collected from now on.
  // Returns UNAVAILABLE if the driver does not answer at all.
  absl::StatusOr<std::vector<Gpu>> ListGpus();
  // Returns NOT_FOUND if the GPU is gone, DATA_LOSS if the driver has lost it, and UNAVAILABLE if
  // something else keeps it from answering.
  absl::StatusOr<GpuReading> Read(const std::string& uuid);
  // Returns the errors since the last call, in their order, at most kXidsMax of them. It never
  // waits.
  std::vector<XidEvent> TakeXids();
  // Collects the errors of a GPU that was away.
  void Watch(const std::string& uuid);
  // Returns a version such as "570.86.10", or an empty text if it is unknown.
  std::string DriverVersion();

  static constexpr int kXidsMax = 256;

 private:
  static constexpr unsigned kNoInstance = ~0U;

  // A GPU whose errors are collected, or an instance of it.
  struct Watched {
    std::string uuid;
    unsigned gpu_instance = kNoInstance;
    unsigned compute_instance = kNoInstance;
  };
  class Asker;

  Nvml(void* library, std::unique_ptr<NvmlFunctions> functions);
  // Finds the handle of a GPU or of an instance, and that of the card on which it is.
  absl::Status Find(const std::string& uuid, void** device, void** card) const;
  absl::StatusOr<Gpu> Describe(void* device, void* card) const;
  bool IsDivided(void* card) const;
  absl::StatusOr<std::vector<Gpu>> ListInstances(void* card) const;
  // Returns the instances of a card that is divided, and otherwise the card.
  absl::StatusOr<std::vector<Gpu>> Offered(void* card, bool is_divided) const;
  void ReadUse(void* device, Asker& asker, GpuReading& reading) const;
  void ReadHealth(void* card, Asker& asker, GpuReading& reading) const;

  void* const library_;
  const std::unique_ptr<NvmlFunctions> functions_;
  void* events_ = nullptr;  // null if the library collects none
  // These are kept by card, because a lost GPU may no longer report its name.
  std::map<void*, std::vector<Watched>> watched_;
};

}  // namespace trainyard::agent
