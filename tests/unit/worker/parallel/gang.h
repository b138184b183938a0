// Gangs for the contract tests: ranks as threads of the test, over any communicator.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/parallel/communicator.h"

namespace trainyard::parallel {

enum class Transport { kLocal, kGloo, kShm };
std::string TransportName(Transport transport);

// Runs `work` on `world_size` threads, each with its communicator, which ends with its thread; the
// statuses by rank.
using RankWork = std::function<absl::Status(Communicator&)>;
std::vector<absl::Status> RunGang(Transport transport, int world_size, const RankWork& work,
                                  absl::Duration timeout = absl::Seconds(20));

}  // namespace trainyard::parallel
