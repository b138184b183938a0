// Devices for people.
#pragma once

#include <string>

#include "trainyard/v1/fleet.pb.h"

namespace trainyard::commands {

// A row a device; with what GPUs do at the moment where there are any.
std::string DeviceTable(const v1::ListWorkersResponse& response);

// "OK", "QUARANTINED (Xid 79)", "SET ASIDE (smells)".
std::string DeviceHealth(const v1::Device& device);

}  // namespace trainyard::commands
