// Looks at all tokens each time, which are few.
#include "server/access/pod_token_ends.h"

namespace trainyard::access {

void PodTokenEnds::Note(const std::string& id, absl::Time end) {
  const MutexLock lock(&mutex_);
  ends_.emplace(id, end);
}

std::vector<std::pair<std::string, absl::Time>> PodTokenEnds::TakeEnded(absl::Time now) {
  std::vector<std::pair<std::string, absl::Time>> ended;
  const MutexLock lock(&mutex_);
  std::erase_if(ends_, [&](const auto& each) {
    if (now < each.second) return false;
    ended.push_back(each);
    return true;
  });
  return ended;
}

}  // namespace trainyard::access
