// Says which devices suit a job by what they and their workers are, whoever holds them now. These
// rules stand here alone: passes, explanations and the admission of submissions ask here.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"

namespace trainyard::core {

// The properties that jobs may ask of a worker, and not of one of its devices.
struct WorkerTraits {
  std::map<std::string, std::string> labels = {};
  // The hash of each data set that it has, by name; unset if it has not told them.
  std::optional<std::map<std::string, std::string>> datasets = {};

  friend auto operator<=>(const WorkerTraits&, const WorkerTraits&) = default;
};
// `datasets` is null if the worker has not told them.
WorkerTraits TraitsOf(const WorkerRecord& worker, const WorkerDatasets* datasets);

// The properties that jobs may ask of a device. It borrows the type.
struct DeviceTraits {
  absl::string_view type;
  int64_t memory_bytes = 0;
  bool bf16 = false;  // it computes in bf16
  // The resources of its host that jobs may hold, and the part that a rank on the device holds by
  // default.
  // They are empty if the host is not divided.
  HostAmount host = {};
  HostAmount share = {};
  bool is_seat = false;  // it is no device, but a place for a rank without one
};
DeviceTraits TraitsOf(const WorkerRecord& worker, const DeviceRecord& device);
DeviceTraits SeatOf(const HostAmount& host);

// Returns what a device stands for of its host: an equal part for each GPU or, if there is none,
// for each device.
HostAmount DeviceShare(const WorkerRecord& worker);

// Returns what a rank that asks for `resources` holds of the host on this device. A rank on a CPU
// device holds the threads of the device, whatever it asks for.
HostAmount HostNeedOn(const HostAmount& resources, const DeviceTraits& device);

// Returns what a rank without a device counts for fair share, in thousandths of a device: the
// larger of its parts of the processors and of the memory that a device of its host stands for.
int64_t MilliDevices(const HostAmount& device_share, const HostAmount& held);
inline constexpr int64_t kWholeDevice = 1000;  // what a rank with a device counts

// Names what a demand asks for and a device does not have, in the order of the checks.
enum class Mismatch {
  kType,
  kLabels,
  kMemory,
  kHost,  // its host has fewer processors or less memory than a rank asks for
  kNeed,  // less memory than was planned for the job
  kBf16,
  kDataset,
  kNone,  // the device suits the demand
};

// Returns the memory that the demand's job needs on a device of this type, or 0 if it is unknown.
int64_t NeedOn(const Demand& demand, absl::string_view type);

// Returns the first mismatch.
Mismatch FirstMismatch(const Demand& demand, const WorkerTraits& worker,
                       const DeviceTraits& device);

}  // namespace trainyard::core
