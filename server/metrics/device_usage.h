// Shows what workers report of their devices: how busy and how hot they are. Workers tell the
// server with each report, so nobody has to reach the workers for it.
#pragma once

#include <map>
#include <string>

#include "server/metrics/families.h"

namespace trainyard::metrics {

// So many devices are shown, in order of the worker's name. Those beyond are only counted.
inline constexpr size_t kDevicesMax = 1024;

// The encoded usage of the devices of each worker, by worker and device.
using PoolUsage = std::map<std::string, std::map<std::string, std::string>>;

Families DeviceFamilies(const PoolUsage& usage, size_t devices_max = kDevicesMax);

}  // namespace trainyard::metrics
