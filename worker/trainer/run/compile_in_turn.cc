// Divides the measuring ranks into rounds, and sends their choices to all when a round is over.
#include "worker/trainer/run/compile_in_turn.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/trainer/run/agreement.h"
#include "worker/trainer/run/step_pace.h"

namespace trainyard::trainer {
namespace {

absl::StatusOr<std::vector<MeasuredWork>> GatherWork(parallel::Communicator& host,
                                                     const MeasuredWork& mine) {
  TY_ASSIGN_OR_RETURN(std::vector<std::string> kinds, GatherNames(host, mine.kind));
  TY_ASSIGN_OR_RETURN(std::vector<std::string> devices, GatherNames(host, mine.device));
  std::vector<MeasuredWork> ranks;
  for (size_t rank = 0; rank < kinds.size(); ++rank) {
    ranks.push_back({std::move(kinds[rank]), std::move(devices[rank])});
  }
  return ranks;
}

}  // namespace

std::vector<int> LeadersOf(const std::vector<MeasuredWork>& ranks) {
  std::map<std::string, int> first_of_kind;
  std::vector<int> leaders;
  for (const MeasuredWork& work : ranks) {
    const int rank = static_cast<int>(leaders.size());
    leaders.push_back(first_of_kind.emplace(work.kind, rank).first->second);
  }
  return leaders;
}

std::vector<std::vector<int>> MeasuringRounds(const std::vector<MeasuredWork>& ranks) {
  const std::vector<int> leaders = LeadersOf(ranks);
  std::map<std::string, size_t> turns_of_device;
  std::vector<std::vector<int>> rounds;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (leaders[rank] != static_cast<int>(rank)) continue;
    const size_t turn = turns_of_device[ranks[rank].device]++;
    rounds.resize(std::max(rounds.size(), turn + 1));
    rounds[turn].push_back(static_cast<int>(rank));
  }
  return rounds;
}

absl::Status CompileInTurn(parallel::Communicator& host, const MeasuredWork& mine,
                           const CompileWith& compile) {
  TY_ASSIGN_OR_RETURN(const std::vector<MeasuredWork> ranks, GatherWork(host, mine));
  const int leader = LeadersOf(ranks)[static_cast<size_t>(host.rank())];
  std::string choices;
  for (const std::vector<int>& round : MeasuringRounds(ranks)) {
    std::string measured;
    if (std::find(round.begin(), round.end(), host.rank()) != round.end()) {
      TY_ASSIGN_OR_RETURN(measured, compile(""));
    }
    host.set_timeout(StepPace::kMeasureLimit);
    for (const int sender : round) {
      TY_ASSIGN_OR_RETURN(std::string text, BroadcastText(host, measured, sender));
      if (sender == leader) choices = std::move(text);
    }
  }
  if (leader == host.rank()) return absl::OkStatus();
  LogInfo("takes over the kernels that another rank has measured",
          {{"rank", absl::StrCat(leader)}});
  return compile(choices).status();
}

}  // namespace trainyard::trainer
