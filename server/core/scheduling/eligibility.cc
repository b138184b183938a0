// Compares what a demand asks for with what there is.
#include "server/core/scheduling/eligibility.h"

#include <algorithm>

namespace trainyard::core {
namespace {

// The type of devices that are shares of a host.
constexpr absl::string_view kCpuType = "cpu";

bool HasLabels(const std::map<std::string, std::string>& labels,
               const std::map<std::string, std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&labels](const auto& label) {
    const auto found = labels.find(label.first);
    return found != labels.end() && found->second == label.second;
  });
}

// A worker that has not told its data sets may have any.
bool HasDataset(const WorkerTraits& worker, const Demand& demand) {
  if (demand.dataset.empty() || !worker.datasets.has_value()) return true;
  const auto found = worker.datasets->find(demand.dataset);
  if (found == worker.datasets->end()) return false;
  return demand.data_digest.empty() || found->second.empty() || found->second == demand.data_digest;
}

}  // namespace

WorkerTraits TraitsOf(const WorkerRecord& worker, const WorkerDatasets* datasets) {
  WorkerTraits traits;
  traits.labels = worker.labels;
  if (datasets != nullptr) traits.datasets = datasets->digests;
  return traits;
}

DeviceTraits TraitsOf(const DeviceRecord& device) {
  return {device.type, device.memory_bytes, device.bf16};
}

int64_t NeedOn(const Demand& demand, absl::string_view type) {
  return type == kCpuType ? demand.host_need_bytes : demand.gpu_need_bytes;
}

Mismatch FirstMismatch(const Demand& demand, const WorkerTraits& worker,
                       const DeviceTraits& device) {
  if (!demand.type.empty() && device.type != demand.type) return Mismatch::kType;
  if (!HasLabels(worker.labels, demand.labels)) return Mismatch::kLabels;
  if (device.memory_bytes < demand.memory_bytes) return Mismatch::kMemory;
  // Devices of which the memory is unknown may have enough.
  if (device.memory_bytes > 0 && device.memory_bytes < NeedOn(demand, device.type)) {
    return Mismatch::kNeed;
  }
  if (demand.bf16 && !device.bf16) return Mismatch::kBf16;
  if (!HasDataset(worker, demand)) return Mismatch::kDataset;
  return Mismatch::kNone;
}

}  // namespace trainyard::core
