// The picture that `trainyard top` shows.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/output/terminal.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/sharing.pb.h"

namespace trainyard::commands {

// As of one moment.
struct TopData {
  std::string server;
  absl::Time now;
  v1::ListWorkersResponse workers;
  std::vector<v1::Job> running;  // jobs that hold devices
  v1::ListQueueResponse queue;
  v1::ListSharesResponse shares;
};

// Devices with their holders, the front of the queue with the reasons, and the shares; at most
// `height` lines (0: all), each at most terminal.width columns. What has no room is counted.
std::string RenderTop(const TopData& data, const output::Terminal& terminal, int height);

}  // namespace trainyard::commands
