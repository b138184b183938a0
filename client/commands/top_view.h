// Draws the picture that `trainyard top` shows.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/output/terminal.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/sharing.pb.h"

namespace trainyard::commands {

// The answers of the server at one moment.
struct TopData {
  std::string server;
  absl::Time now;
  v1::ListWorkersResponse workers;
  std::vector<v1::Job> running;  // the jobs that hold devices
  v1::ListQueueResponse queue;
  v1::ListSharesResponse shares;
};

// Shows the devices with the jobs that hold them, the front of the queue with the reasons, and the
// shares, in at most `height` lines (0: no limit) of at most terminal.width columns. Rows for which
// there is no room are counted.
std::string RenderTop(const TopData& data, const output::Terminal& terminal, int height);

}  // namespace trainyard::commands
