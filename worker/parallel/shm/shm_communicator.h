// Connects a gang of processes on one host, over shared memory. Unlike Gloo it needs no network
// stack. Since it does not sleep at first, it also saves the wake-ups, which cost more than the sum
// itself if each rank has one processor.
#pragma once

#include <atomic>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/group.h"
#include "worker/run_dir/paths.h"

namespace trainyard::parallel {

struct ShmOptions {
  int rank = 0;  // in the gang, as is the size
  int world_size = 1;
  Group group = {};  // the whole gang, unless it has members
  run_dir::RunDir run_dir{""};
  // The time in which all ranks must attach.
  absl::Duration connect_timeout = absl::Seconds(60);
  // The deadline of each collective, until set_timeout changes it.
  absl::Duration timeout = absl::Seconds(60);
  // Ends the wait for the other ranks when it becomes true; may be null. Borrowed during the call.
  const std::atomic<bool>* cancelled = nullptr;
};

// Connects the ranks, and returns when all are attached. Returns UNAVAILABLE (PEER_LOST) with the
// ranks that did not appear, CANCELLED, or FAILED_PRECONDITION if the rendezvous folder holds
// another run's keys. All ranks must share a process namespace and a user.
//
// A rank whose process ends is noticed within milliseconds. Sums are taken in rank order, so all
// ranks get the same bits.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectShm(const ShmOptions& options);

}  // namespace trainyard::parallel
