// Writes the records of plans as JSON and as a table.
#include "tests/bench/gpu/plan_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace trainyard::engine::bench {
namespace {

using cuda::ComparedWith;

bool IsCompared(const cuda::PlanRecord& plan) {
  return plan.is_verified && plan.compared_with != ComparedWith::kNothing;
}

std::string NameOf(ComparedWith compared_with) {
  switch (compared_with) {
    case ComparedWith::kNothing:
      break;
    case ComparedWith::kCandidates:
      return "each other";
    case ComparedWith::kOwnKernel:
      return "our own kernel";
  }
  return "nothing";
}

std::string VerdictOf(const cuda::PlanRecord& plan) {
  if (!plan.is_verified) return "not compared";
  if (!IsCompared(plan)) return "nothing to compare with";
  const std::string with = NameOf(plan.compared_with);
  if (plan.is_disputed) return absl::StrCat("all differ from ", with);
  return plan.refused.empty()
             ? absl::StrFormat("agree with %s to %.2f of the bound", with, plan.difference)
             : absl::StrCat(plan.refused.size(), " refused, compared with ", with);
}

}  // namespace

nlohmann::json ToJson(const std::vector<cuda::PlanRecord>& plans) {
  nlohmann::json list = nlohmann::json::array();
  for (const cuda::PlanRecord& plan : plans) {
    list.push_back({{"problem", plan.problem},
                    {"engine", plan.engine},
                    {"candidates", plan.candidates},
                    {"microseconds", plan.microseconds},
                    {"workspace_bytes", plan.workspace_bytes},
                    {"from_cache", plan.from_cache},
                    {"verified", plan.is_verified},
                    {"compared_with", NameOf(plan.compared_with)},
                    {"difference", plan.difference},
                    {"refused", plan.refused},
                    {"disputed", plan.is_disputed}});
  }
  return list;
}

std::string RenderPlans(const std::vector<cuda::PlanRecord>& plans) {
  if (plans.empty()) return "";
  std::string text =
      "| plan | engine | of | us | workspace MiB | candidates |\n|---|---|---|---|---|---|\n";
  for (const cuda::PlanRecord& plan : plans) {
    absl::StrAppendFormat(&text, "| %s | %s%s | %d | %.1f | %.1f | %s |\n", plan.problem,
                          plan.engine, plan.from_cache ? ", from the cache" : "", plan.candidates,
                          plan.microseconds, static_cast<double>(plan.workspace_bytes) / (1 << 20),
                          VerdictOf(plan));
  }
  return text;
}

std::string PlansLine(const std::vector<cuda::PlanRecord>& plans) {
  int64_t candidates = 0, judged = 0, compared = 0, alone = 0, refused = 0;
  for (const cuda::PlanRecord& plan : plans) {
    if (!plan.is_verified) continue;
    judged += plan.compared_with == ComparedWith::kOwnKernel ? 1 : 0;
    ++(IsCompared(plan) ? compared : alone);
    candidates += IsCompared(plan) ? plan.candidates : 0;
    refused += static_cast<int64_t>(plan.refused.size());
  }
  return absl::StrCat("plans: ", plans.size(), "; ", candidates, " candidates of ", compared,
                      " were compared, of ", judged, " with our own kernels, ", refused,
                      " refused; ", alone, " had nothing to be compared with");
}

absl::Status CheckVerified(const std::vector<cuda::PlanRecord>& plans) {
  std::vector<std::string> refused;
  for (const cuda::PlanRecord& plan : plans) {
    for (const std::string& reason : plan.refused) {
      refused.push_back(absl::StrCat(plan.problem, ": ", reason));
    }
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      refused.size(), " candidates compute something else: ", absl::StrJoin(refused, "; ")));
}

}  // namespace trainyard::engine::bench
