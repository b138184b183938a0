// A part of a gang that talks by itself: the ranks that hold one stage, two neighbours in a
// pipeline, or all of them on a second line. Each group has a communicator of its own, with a
// thread of its own if need be.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/parallel/communicator.h"

namespace trainyard::parallel {

struct Group {
  // Part of the rendezvous keys: [a-z0-9_]{1,40}, different for each group of a gang, and the same
  // on its members.
  std::string name;
  // Global ranks, ascending; a member's rank in the group is its place here. Errors name these.
  std::vector<int> members;
};

// Connects the calling rank, which is a member, with the others. All members call it, in an order
// that lets no two wait for each other.
using ConnectGroup =
    std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const Group& group)>;

}  // namespace trainyard::parallel
