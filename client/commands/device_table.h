// Draws the table of devices that `devices ls` and `workers ls -o wide` show.
#pragma once

#include <string>

#include "trainyard/v1/fleet.pb.h"

namespace trainyard::commands {

// Returns a table with a row for each device. If there are GPUs, it shows what they do at the
// moment.
std::string DeviceTable(const v1::ListWorkersResponse& response);

// Returns "OK", or why the device is not used: "QUARANTINED (Xid 79)", "SET ASIDE (smells)".
std::string DeviceHealth(const v1::Device& device);

}  // namespace trainyard::commands
