// Looks at the GPUs regularly, and remembers what it has seen of each.
#include "worker/agent/device_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "worker/agent/gpu_facts.h"

namespace trainyard::agent {
namespace {

DeviceUsage UsageOf(const GpuReading& reading) {
  DeviceUsage usage;
  usage.utilization = reading.utilization;
  usage.memory_utilization = reading.memory_utilization;
  usage.memory_bytes = reading.memory_used_bytes;
  usage.power_watts = reading.power_watts;
  usage.power_limit_watts = reading.power_limit_watts;
  usage.temperature_celsius = reading.temperature_celsius;
  usage.ecc_errors = reading.uncorrected_ecc_errors;
  usage.slowed_by = SlowedBy(reading.throttle_reasons.value_or(0));
  return usage;
}

}  // namespace

DeviceWatch::DeviceWatch(const std::vector<Device>& devices, Nvml& nvml, ProcessView view)
    : nvml_(nvml), view_(std::move(view)) {
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(gpus_),
               [](const Device& device) { return device.type != "cpu"; });
}

void DeviceWatch::Look(const std::set<std::string>& held) {
  xids_ = nvml_.TakeXids();
  for (const XidEvent& event : xids_) {
    LogWarning("the driver reports an error of a GPU",
               {{"device", event.uuid}, {"xid", absl::StrCat(event.xid)}});
    faults_[event.uuid].TakeXid(event.xid);
  }
  std::map<std::string, DeviceUse> uses;
  for (Device& device : gpus_) {
    const absl::StatusOr<GpuReading> reading = nvml_.Read(device.name);
    GpuFaults& faults = faults_[device.name];
    const std::string before =
        device.health == Device::Health::kQuarantined ? device.health_reason : "";
    if (faults.Take(reading)) nvml_.Watch(device.name);
    const std::string& reason = faults.reason();
    device.health = reason.empty() ? Device::Health::kOk : Device::Health::kQuarantined;
    device.health_reason = reason;
    if (reason != before) {
      LogWarning(reason.empty() ? "a GPU is well again" : "a GPU is set aside",
                 {{"device", device.name}, {"reason", reason.empty() ? before : reason}});
    }
    device.usage.reset();
    if (!reading.ok()) continue;
    device.usage = UsageOf(*reading);
    DeviceUse& use = uses[device.name];
    use.processes = reading->processes.value_or(std::vector<int64_t>());
    use.memory_bytes = reading->memory_used_bytes.value_or(0);
    // The driver may list a rank for a moment after its end.
    use.has_ranks = held.contains(device.name) || held_before_.contains(device.name);
  }
  gpus_ = MarkUnmanagedUse(std::move(gpus_), uses, view_);
  held_before_ = held;
}

const Device* DeviceWatch::Find(const std::string& name) const {
  const auto found = std::find_if(gpus_.begin(), gpus_.end(),
                                  [&name](const Device& device) { return device.name == name; });
  return found == gpus_.end() ? nullptr : &*found;
}

std::string DeviceWatch::WhyRanksEnd(const std::string& name) const {
  const auto found = faults_.find(name);
  return found != faults_.end() && found->second.ends_ranks() ? found->second.reason() : "";
}

std::vector<int64_t> DeviceWatch::XidsOf(const std::string& name) const {
  std::vector<int64_t> numbers;
  for (const XidEvent& event : xids_) {
    if (event.uuid == name) numbers.push_back(event.xid);
  }
  return numbers;
}

}  // namespace trainyard::agent
