// A device that does not know a number, such as the power of a share of a CPU, has no series of it.
#include "server/metrics/device_usage.h"

#include <utility>

#include "server/codec/progress.h"

namespace trainyard::metrics {

Families DeviceFamilies(const PoolUsage& usage, size_t devices_max) {
  prometheus::MetricFamily busy =
      Gauge("trainyard_device_utilization_ratio",
            "The share of the last moment in which the device computed, from 0 to 1.");
  prometheus::MetricFamily memory =
      Gauge("trainyard_device_memory_used_bytes", "The memory of the device that is in use.");
  prometheus::MetricFamily power =
      Gauge("trainyard_device_power_watts", "The power that the device draws.");
  prometheus::MetricFamily heat =
      Gauge("trainyard_device_temperature_celsius", "The temperature of the chip.");
  prometheus::MetricFamily errors =
      Gauge("trainyard_device_uncorrected_ecc_errors",
            "The number of uncorrected memory errors since the driver was loaded.");
  prometheus::MetricFamily slowed =
      Gauge("trainyard_device_slowed", "It is 1 while the clocks of the device are slowed down.");
  size_t shown = 0;
  size_t left_out = 0;
  for (const auto& [worker, devices] : usage) {
    for (const auto& [device, encoded] : devices) {
      if (shown == devices_max) {
        ++left_out;
        continue;
      }
      ++shown;
      const v1::DeviceUsage used = codec::DecodeUsage(encoded);
      const Labels labels = {{"worker", worker}, {"device", device}};
      if (used.has_utilization()) AddValue(busy, labels, used.utilization());
      if (used.has_memory_bytes()) {
        AddValue(memory, labels, static_cast<double>(used.memory_bytes()));
      }
      if (used.has_power_watts()) AddValue(power, labels, used.power_watts());
      if (used.has_temperature_celsius()) AddValue(heat, labels, used.temperature_celsius());
      if (used.has_ecc_errors()) AddValue(errors, labels, static_cast<double>(used.ecc_errors()));
      AddValue(slowed, labels, used.slowed_by().empty() ? 0 : 1);
    }
  }
  return {std::move(busy),
          std::move(memory),
          std::move(power),
          std::move(heat),
          std::move(errors),
          std::move(slowed),
          OneGauge("trainyard_devices_left_out",
                   "The number of devices that have no series of their own because there are too "
                   "many.",
                   static_cast<double>(left_out))};
}

}  // namespace trainyard::metrics
