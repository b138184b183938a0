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

HostAmount DeviceShare(const WorkerRecord& worker) {
  const auto gpus = static_cast<int32_t>(
      std::count_if(worker.devices.begin(), worker.devices.end(),
                    [](const DeviceRecord& device) { return device.type != kCpuType; }));
  const int32_t parts = gpus > 0 ? gpus : std::max(1, static_cast<int32_t>(worker.devices.size()));
  return {worker.host.cpus / parts, worker.host.memory_bytes / parts};
}

DeviceTraits TraitsOf(const WorkerRecord& worker, const DeviceRecord& device) {
  DeviceTraits traits{device.type, device.memory_bytes, device.bf16, worker.host};
  if (worker.host.cpus == 0) return traits;
  if (device.type != kCpuType) {
    traits.share = DeviceShare(worker);
  } else {
    const auto count = static_cast<int64_t>(
        std::count_if(worker.devices.begin(), worker.devices.end(),
                      [](const DeviceRecord& other) { return other.type == kCpuType; }));
    traits.share = {device.threads, worker.host.memory_bytes / count};
  }
  return traits;
}

DeviceTraits SeatOf(const HostAmount& host) {
  DeviceTraits seat;
  seat.host = host;
  if (host.cpus > 0) seat.share = {1, host.memory_bytes / host.cpus};
  seat.is_seat = true;
  return seat;
}

HostAmount HostNeedOn(const HostAmount& resources, const DeviceTraits& device) {
  if (device.host.empty()) return {};
  HostAmount need = device.share;
  if (device.is_seat && resources.cpus > 0) {
    need = {resources.cpus, device.share.memory_bytes * resources.cpus};
  } else if (resources.cpus > 0 && device.type != kCpuType) {
    need.cpus = resources.cpus;
  }
  if (resources.memory_bytes > 0) need.memory_bytes = resources.memory_bytes;
  return need;
}

int64_t MilliDevices(const HostAmount& device_share, const HostAmount& held) {
  const int64_t cpus = kWholeDevice * held.cpus / std::max(device_share.cpus, 1);
  const int64_t memory_share = device_share.memory_bytes;
  const auto memory = static_cast<int64_t>(static_cast<__int128>(held.memory_bytes) * kWholeDevice /
                                           std::max<int64_t>(memory_share, 1));
  return std::max<int64_t>({cpus, memory_share == 0 ? 0 : memory, 1});
}

int64_t NeedOn(const Demand& demand, absl::string_view type) {
  return type == kCpuType ? demand.host_need_bytes : demand.gpu_need_bytes;
}

Mismatch FirstMismatch(const Demand& demand, const WorkerTraits& worker,
                       const DeviceTraits& device) {
  if (demand.is_deviceless != device.is_seat) return Mismatch::kType;
  if (!demand.type.empty() && device.type != demand.type) return Mismatch::kType;
  if (!HasLabels(worker.labels, demand.labels)) return Mismatch::kLabels;
  if (device.memory_bytes < demand.memory_bytes) return Mismatch::kMemory;
  if (!device.host.empty()) {
    const HostAmount& most = device.host;
    const int32_t cpus = device.type == kCpuType ? device.share.cpus : most.cpus;
    const HostAmount need = HostNeedOn(demand.resources, device);
    if (demand.resources.cpus > cpus || need.memory_bytes > most.memory_bytes) {
      return Mismatch::kHost;
    }
  }
  // Devices of which the memory is unknown may have enough.
  if (device.memory_bytes > 0 && device.memory_bytes < NeedOn(demand, device.type)) {
    return Mismatch::kNeed;
  }
  if (demand.bf16 && !device.bf16) return Mismatch::kBf16;
  if (!HasDataset(worker, demand)) return Mismatch::kDataset;
  return Mismatch::kNone;
}

}  // namespace trainyard::core
