// Defines a part of a gang that communicates separately: the ranks that hold one stage, two
// neighbours in a pipeline, or the whole gang on a second line. Each group has a communicator of
// its own, and a thread of its own if necessary.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/parallel/communicator.h"

namespace trainyard::parallel {

struct Group {
  // A part of the rendezvous keys: [a-z0-9_]{1,40}, different for each group of a gang, and the
  // same on all of its members.
  std::string name;
  // The global ranks, ascending. A member's rank in the group is its index here. Errors name the
  // global ranks.
  std::vector<int> members;
};

// The knowledge of a communicator about its group.
struct Membership {
  int rank = 0;              // in the group
  std::vector<int> members;  // global ranks by rank in the group
  // The end of its rendezvous keys after the transport's name. It is empty for the whole gang.
  std::string key_prefix = {};

  int size() const { return static_cast<int>(members.size()); }
  // Returns the global rank, for errors. -1 stays -1.
  int Global(int of) const { return of < 0 ? of : members[static_cast<size_t>(of)]; }
};

// Returns the membership of the global rank `rank`. A group without members is the whole gang.
// `group` must be well-formed and contain the rank.
Membership MembershipOf(const Group& group, int rank, int world_size);

// Connects the calling rank, which is a member, with the others. All members call it, in an order
// in which no two groups wait for each other.
using ConnectGroup =
    std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const Group& group)>;

}  // namespace trainyard::parallel
