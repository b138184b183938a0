// Defines the report of the daemon to the server about its attempts and devices.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "worker/run_dir/isolation.h"
#include "worker/run_dir/records.h"

namespace trainyard::agent {

struct ReportedAttempt {
  enum class State { kStarting, kRunning, kStopping, kExited };
  AttemptId id;
  int64_t fencing_token = 0;
  State state = State::kStarting;
  // The progress of the lowest rank on this host.
  std::optional<run_dir::Progress> progress;
  std::optional<absl::Duration> eta;
  int64_t checkpoint_step = 0;  // the newest that the server has; 0 if there is none
  run_dir::IsolationLevel isolation = run_dir::IsolationLevel::kUnknown;
  // This is for kExited.
  std::optional<run_dir::AttemptExit> exit;
  bool drained = false;
  std::map<std::string, std::string> rendezvous;
  std::map<std::string, double> metrics;  // last values

  friend bool operator==(const ReportedAttempt&, const ReportedAttempt&) = default;
};

// The load of a GPU at one moment; see v1::DeviceUsage.
struct DeviceUsage {
  std::optional<double> utilization = {};
  std::optional<double> memory_utilization = {};
  std::optional<int64_t> memory_bytes = {};
  std::optional<double> power_watts = {};
  std::optional<double> power_limit_watts = {};
  std::optional<double> temperature_celsius = {};
  std::optional<int64_t> ecc_errors = {};
  std::string slowed_by = {};

  friend bool operator==(const DeviceUsage&, const DeviceUsage&) = default;
};

struct Device {
  enum class Health { kOk, kQuarantined, kUnmanagedUse };
  std::string name;
  std::string type;
  std::string product;
  int64_t memory_bytes = 0;
  int island = 0;  // as Gpu::island
  std::vector<int64_t> cpus;
  int threads = 1;
  Health health = Health::kOk;
  std::string health_reason;
  std::optional<DeviceUsage> usage;
  bool bf16 = false;                    // it computes in bf16
  std::vector<int64_t> near_cpus = {};  // of a GPU; empty if they are not known

  friend bool operator==(const Device&, const Device&) = default;
};

// One split of a data set in the worker's folder; see v1::DatasetSplit.
struct DatasetSplit {
  std::string dataset;
  std::string path;
  std::string split;
  int64_t samples = 0;
  int64_t classes = 0;
  std::string shape;
  std::string digest;
  std::string error;

  friend bool operator==(const DatasetSplit&, const DatasetSplit&) = default;
};
using Datasets = std::vector<DatasetSplit>;

struct Report {
  // The answer of the server upon which this host has acted, or 0 before the first.
  int64_t desired_serial = 0;
  int64_t desired_revision = 0;
  std::vector<ReportedAttempt> attempts;
  // Devices whose health or usage may differ from their registration.
  std::vector<Device> changed_devices;
  // The data sets of this host; null before they are known. All copies share them.
  std::shared_ptr<const Datasets> datasets;
  // The users whose jobs this host has refused, and still refuses, and why.
  std::map<std::string, std::string> refused_users;
  // The time in which what runs here is to go on elsewhere, because the daemon is to end; 0 if it
  // is not.
  absl::Duration leave_within;

  friend bool operator==(const Report&, const Report&) = default;
};

// Returns true if `next` contains something that should not wait for the next regular sync: a
// state, an end, a drained attempt, a checkpoint, a rendezvous key, a digest, a device's health,
// other data sets, or the wish to leave.
bool IsUrgent(const Report& previous, const Report& next);

}  // namespace trainyard::agent
