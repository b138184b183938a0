// The words of server/core <-> the words of worker/agent, as the two converters beside the wire
// would make them of each other (server/rpc/convert_agent.cc, worker/agent/convert.cc).
#pragma once

#include <vector>

#include "tests/sim/server.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/link_core.h"
#include "worker/agent/report.h"

namespace trainyard::sim {

agent::Desired ToAgent(const DesiredState& state);
core::SyncReport ToCore(const agent::LinkCore::Sync& sync);
std::vector<core::DeviceRecord> ToCore(const std::vector<agent::Device>& devices);

}  // namespace trainyard::sim
