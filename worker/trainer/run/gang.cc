// Names the groups of ranks that have lines of their own. The names are part of the rendezvous
// keys, so they are the same on all members and differ between groups.
#include "worker/trainer/run/gang.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace trainyard::trainer {

void Gang::set_timeout(absl::Duration timeout) {
  lines.host->set_timeout(timeout);
  if (exchange != nullptr) exchange->set_timeout(timeout);
}

parallel::Group AllRanks(const std::string& name, const GridPlace& place) {
  parallel::Group group{
      .name = name,
      .members = std::vector<int>(static_cast<size_t>(place.stages * place.pipelines))};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

parallel::Group RanksOfStage(const std::string& name, const GridPlace& place) {
  if (place.stages == 1) return AllRanks(name, place);
  parallel::Group group{.name = absl::StrCat("stage_", place.stage, "_", name), .members = {}};
  for (int pipeline = 0; pipeline < place.pipelines; ++pipeline) {
    group.members.push_back(pipeline * place.stages + place.stage);
  }
  return group;
}

}  // namespace trainyard::trainer
