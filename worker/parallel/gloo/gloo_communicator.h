// A gang of processes over TCP, by Gloo. The ranks find each other through the rendezvous folder of
// the run directory.
//
// Gloo speaks plain text without authentication: bind it to a private interface.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/group.h"
#include "worker/run_dir/paths.h"

namespace trainyard::parallel {

struct GlooOptions {
  int rank = 0;  // in the gang, as is the size
  int world_size = 1;
  Group group = {};  // the whole gang, unless it has members
  run_dir::RunDir run_dir{""};
  // Network interface ("lo", "eth0") or local address to listen on.
  std::string interface = "lo";
  // For all ranks to appear and connect.
  absl::Duration connect_timeout = absl::Seconds(60);
  // Of each collective, until set_timeout.
  absl::Duration timeout = absl::Seconds(60);
  // Ends the wait for the other ranks when it becomes true; may be null. Borrowed during the call.
  const std::atomic<bool>* cancelled = nullptr;
};

// Returns when all ranks are connected. UNAVAILABLE (PEER_LOST) naming the ranks that did not
// appear, CANCELLED, FAILED_PRECONDITION where the interface does not exist or the folder holds
// another run's keys.
//
// A rank whose process ends is noticed at once, by its closed connection. Sums are taken in rank
// order, so all ranks get the same bits.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(const GlooOptions& options);

}  // namespace trainyard::parallel
