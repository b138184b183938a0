// Connects groups of a gang over host memory, by a transport that the program chooses once for all
// of them.
#pragma once

#include <atomic>
#include <string>

#include "absl/time/time.h"
#include "worker/parallel/group.h"
#include "worker/run_dir/paths.h"

namespace trainyard::parallel {

enum class HostTransport { kShm, kGloo };

struct HostGroupOptions {
  HostTransport transport = HostTransport::kGloo;
  int rank = 0;
  int world_size = 1;
  run_dir::RunDir run_dir{""};
  // For kGloo: the network interface or local address to listen on.
  std::string interface = "lo";
  // For kGloo: this host's name, for messages; may be empty.
  std::string worker = {};
  // The time in which all members of a group must appear, and the deadline of each collective until
  // set_timeout changes it.
  absl::Duration connect_timeout = absl::Seconds(60);
  absl::Duration timeout = absl::Seconds(60);
  // Ends the wait for other ranks when it becomes true; may be null. Must outlive the function.
  const std::atomic<bool>* cancelled = nullptr;
};

// Returns a function that connects groups. The errors are those of ConnectShm and ConnectGloo. A
// group of one rank waits for nobody. A group without members is the whole gang, and its name is
// ignored.
ConnectGroup HostGroups(const HostGroupOptions& options);

}  // namespace trainyard::parallel
