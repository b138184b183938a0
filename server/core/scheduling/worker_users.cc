// Words what WorkerUsers says.
#include "server/core/scheduling/worker_users.h"

#include "absl/strings/str_cat.h"

namespace trainyard::core {

std::string WhyNotFor(absl::string_view user, absl::string_view worker, const WorkerUsers& users) {
  if (!users.only.empty() && users.only != user) {
    return absl::StrCat("worker ", worker, " runs jobs of ", users.only, " only");
  }
  const auto refused = users.refused.find(std::string(user));
  if (refused == users.refused.end()) return "";
  return absl::StrCat("worker ", worker, " does not run jobs of ", user, ": ", refused->second);
}

}  // namespace trainyard::core
