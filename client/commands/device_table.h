// The table of devices that `devices ls` and `workers ls -o wide` show.
#pragma once

#include <string>

#include "trainyard/v1/fleet.pb.h"

namespace trainyard::commands {

// A row for each device. Where there are GPUs, it shows what they do at the moment.
std::string DeviceTable(const v1::ListWorkersResponse& response);

// "OK", "QUARANTINED (Xid 79)", "SET ASIDE (smells)".
std::string DeviceHealth(const v1::Device& device);

}  // namespace trainyard::commands
