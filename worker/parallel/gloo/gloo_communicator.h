// Connects a gang of processes over TCP, with Gloo. The ranks find each other through the
// rendezvous folder of the run directory.
//
// Gloo sends plain text without authentication, so it should be bound to a private interface.
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
  // The address to listen on: the name of an interface ("lo", "eth0"), an address of this host, or
  // a network ("10.1.0.0/16") in which it has an address.
  std::string interface = "lo";
  // This host's name, for messages; may be empty.
  std::string worker = {};
  // The time in which all ranks must appear and connect.
  absl::Duration connect_timeout = absl::Seconds(60);
  // The deadline of each collective, until set_timeout changes it.
  absl::Duration timeout = absl::Seconds(60);
  // Ends the wait for the other ranks when it becomes true; may be null. Borrowed during the call.
  const std::atomic<bool>* cancelled = nullptr;
};

// Connects the ranks, and returns when all are connected. Returns UNAVAILABLE (PEER_LOST) with the
// ranks that did not appear, or the addresses that could not be connected, CANCELLED, or
// FAILED_PRECONDITION if the interface does not exist, or the folder holds another run's keys.
//
// Errors name the place of the rank that failed and of this one: "rank 1 is at 10.1.0.3:41234 on
// worker b, rank 0 at 10.1.0.2 on worker a". The kernel chooses the ports.
//
// A rank whose process ends is noticed at once, by its closed connection. Sums are taken in rank
// order, so all ranks get the same bits.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(const GlooOptions& options);

}  // namespace trainyard::parallel
