// Makes pilots of the pods and Jobs that a list has shown, and says what has to be tidied up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/provision/core/inputs.h"
#include "server/provision/core/provider.h"
#include "server/provision/kubernetes/answers.h"

namespace trainyard::provision::kubernetes {

// A request whose answer was lost may come true this much later. A pilot that lacks pods then will
// not get them any more.
inline constexpr int64_t kPodsSettleUs = 3 * kMinuteUs;
// An image or a setting that is not there for so long will not come.
inline constexpr int64_t kBeginPatienceUs = 5 * kMinuteUs;
// A pod that has ended stays for so long, so that people can read its log.
inline constexpr int64_t kEndedStaysUs = 10 * kMinuteUs;
// The node of a pod that is not gone so long after its grace period is dead, and nobody else says
// so.
inline constexpr int64_t kDeadNodeUs = 5 * kMinuteUs;

// Something that has to be deleted.
struct Chore {
  bool is_job = false;
  std::string name;
  std::string uid;  // only this one is meant, and not another of its name
  bool is_forced = false;

  friend bool operator==(const Chore&, const Chore&) = default;
};

struct Sights {
  // The names of pilots are their foreign ids as well.
  std::vector<ListedPilot> pilots;
  std::vector<Chore> chores;
};

// A pilot is as far as the least of its pods. Once one of them ends, all of it does, since jobs
// count on the pilot as a whole.
Sights JoinPilots(const std::vector<Found>& pods, const std::vector<Found>& jobs, int64_t now_us);

}  // namespace trainyard::provision::kubernetes
